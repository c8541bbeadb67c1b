"""Law 1 across leaves: what all have accumulated = what was sent + what is left over all who are there."""

from __future__ import annotations

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from leaving_worlds import LeavingWorld

from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.allreduce.sync import Sync
from taut.strategies.api import Method
from taut.strategies.delivery.residual_handoff import DECLINED, INHERITED, RESIDUAL, ResidualHandoff
from taut.strategies.gossip.gossip import Gossip
from taut.strategies.tree.relay import Relay

SIZE, WORKERS = 192, 5
STREAMS = ["threshold:tau=2^-3", "topk:density=0.05", "onebit"]
CODED = ["threshold:tau=2^-3", "topk:density=0.05", "sign"]
CASES = [
    *((Gossip(mix=0), "ring", codec) for codec in STREAMS),
    *((Relay(), "ring", codec) for codec in STREAMS),
    *((Sync(), "complete", codec) for codec in CODED),
]


def world_of(method: Method, topology: str, codec: str, seed: int) -> LeavingWorld:
    random = np.random.default_rng(seed)

    def step(actor):
        change = random.normal(0, 0.2, SIZE).astype(np.float32)
        if method.streams:
            actor.x += change
        else:
            actor.x[:] = change  # a gradient
        return 1

    return LeavingWorld(method, WORKERS, SIZE, codec, topology=topology, seed=seed, step=step)


@pytest.mark.parametrize(("method", "topology", "codec"), CASES, ids=lambda one: getattr(one, "name", one))
@given(
    leaves=st.lists(st.tuples(st.integers(0, 60), st.integers(0, WORKERS - 1)), min_size=1, max_size=WORKERS),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=some(12), deadline=None)
def test_accumulated_is_sent_and_left_whoever_leaves_and_when(method, topology, codec, leaves, seed):
    world = world_of(method, topology, codec, seed)
    gone = 0
    for event in range(80):
        for at, rank in leaves:
            if at == event:
                gone += world.leave(rank)
        world.happen()
    world.settle()
    assert len(world.actors) == WORKERS - gone >= 1
    account = world.account
    assert np.abs(account.taken).max() > 0.1
    assert world.left() == pytest.approx(account.taken - account.sent, abs=1e-4)


@pytest.mark.parametrize(("method", "topology", "codec"), [CASES[0], CASES[3], CASES[6]])
def test_all_but_one_leave_at_once(method, topology, codec):
    """Heirs decline, for they leave too, until somebody is found who stays."""
    world = world_of(method, topology, codec, seed=3)
    for _ in range(40):
        world.happen()
    for rank in range(WORKERS - 1):
        while not world.leave(rank):
            world.happen()
    world.settle()
    assert list(world.actors) == [WORKERS - 1]
    assert np.abs(world.left()).max() > 0.1
    assert world.left() == pytest.approx(world.account.taken - world.account.sent, abs=1e-4)


# ---------------------------------------------------------------------------------------------------- the protocol


def taking() -> tuple[ResidualHandoff, list[bytes]]:
    taken: list[bytes] = []
    return ResidualHandoff(taken.append), taken


def test_an_heir_that_is_gone_without_an_answer_is_followed_by_the_next():
    leaver, _ = taking()
    assert [tell.to for tell in leaver.leave([b"a", b"b"], [1, 2])] == [1, 1]
    assert leaver.heard(1, Note(INHERITED, 0), b"") == []
    assert leaver.members_changed([0, 1, 2]) == []
    assert [(tell.to, tell.payload) for tell in leaver.members_changed([0, 2])] == [(2, b"b")]
    assert not leaver.done
    assert leaver.heard(2, Note(INHERITED, 1), b"") == [] and leaver.done


def test_an_heir_that_leaves_too_declines_and_keeps_nothing():
    (leaver, _), (receiver, taken) = taking(), taking()
    tells = leaver.leave([b"a", b"b"], [1, 2])
    receiver.leave([], [0, 2])
    answers = [answer for tell in tells for answer in receiver.heard(0, tell.note, bytes(tell.payload))]
    assert [answer.note.kind for answer in answers] == [DECLINED, DECLINED] and taken == []
    asked = [tell for answer in answers for tell in leaver.heard(1, answer.note, b"")]
    assert [(tell.to, tell.payload) for tell in asked] == [(2, b"a"), (2, b"b")]


def test_where_everybody_leaves_nobody_waits():
    leaver, _ = taking()
    leaver.leave([b"a"], [1])
    assert leaver.heard(1, Note(DECLINED, 0), b"") == [] and leaver.done
    alone, _ = taking()
    assert alone.leave([b"a"], []) == [] and alone.done
    empty, _ = taking()
    assert empty.leave([], [1]) == [] and empty.done


@pytest.mark.parametrize(("sender", "kind", "number"), [(2, INHERITED, 0), (1, INHERITED, 7), (2, DECLINED, 0)])
def test_answers_that_nobody_asked_for_are_refused(sender, kind, number):
    leaver, _ = taking()
    leaver.leave([b"a"], [1, 2])
    with pytest.raises(MalformedMessage):
        leaver.heard(sender, Note(kind, number), b"")
    assert not leaver.done


def test_a_part_that_cannot_be_taken_is_not_answered():
    def refuse(part: bytes) -> None:
        raise MalformedMessage("not one of ours")

    with pytest.raises(MalformedMessage):
        ResidualHandoff(refuse).heard(0, Note(RESIDUAL, 0), b"junk")

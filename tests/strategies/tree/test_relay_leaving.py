"""A relay that leaves takes nothing with it: every update that anybody ever made is in everybody's weights, once."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from leaving_worlds import LeavingWorld

from taut.core.events import Ended
from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.api import Draining, Heard, Leaving, MembersChanged, Refuse, Stepped, Tell
from taut.strategies.tree.relay import Relay
from taut.strategies.tree.spanning_tree import tree_key

SIZE = 64
TOPOLOGIES = ("ring", "line", "star", "tree", "complete")
CODECS = ("threshold:tau=2^-3", "tether:slack=2^-3")


class Late(LeavingWorld):
    """Workers hear of changes at different times, and of some never: the next one comes before. The network's word that
    somebody is gone is in the roster, too, so what is sent to it until then is lost."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        self.behind: set[int] = set()
        super().__init__(*given, **settings)
        self.promptness = self.random.choice([0.01, 0.03, 0.1])

    def kill(self, rank: int) -> None:
        del self.actors[rank]
        self.version += 1
        for pair in [pair for pair in self.queues if rank in pair]:
            assert pair[0] != rank or not self.queues[pair], "it went before all had heard it"
            del self.queues[pair]
        self.behind = set(self.actors)

    def hear_of_it(self, rank: int) -> None:
        if rank in self.behind:
            self.behind.discard(rank)
            self.tell(rank, MembersChanged(self.membership(rank)))

    def happen(self) -> None:
        if self.behind and self.random.random() < self.promptness:
            self.hear_of_it(self.random.choice(sorted(self.behind)))
        super().happen()

    def settle(self) -> None:
        for _ in range(20_000):
            self.depart()
            if not self.deliver():
                for rank in sorted(self.behind):
                    self.hear_of_it(rank)
                if not self.leaving and not any(self.queues.values()):
                    return
        raise AssertionError(f"workers {sorted(self.leaving)} cannot leave")


def world_of(workers: int, topology: str, codec: str, seed: int, late: bool = True) -> LeavingWorld:
    noise = np.random.default_rng(seed)

    def step(actor: Any) -> int:
        actor.x += noise.normal(0, 0.2, SIZE).astype(np.float32)
        return 1

    kind = Late if late else LeavingWorld
    return kind(Relay(), workers, SIZE, codec, topology=topology, seed=seed, step=step)


def finish(world: LeavingWorld) -> None:
    """Everybody ends alike, and with the sum of all updates that were ever made."""
    world.settle()
    world.finish()
    for actor in world.actors.values():
        assert world.method.figures(actor.method_state)["repaired"] == 0.0, "nothing was lost, so nothing is to be mended"
    shared = [np.asarray(actor.shared) for actor in world.actors.values()]
    assert len({hashlib.sha256(each.tobytes()).hexdigest() for each in shared}) == 1
    np.testing.assert_array_equal(shared[0].astype(np.float64), world.account.sent)
    assert np.abs(world.account.sent).max() > 0.1


@given(
    leaves=st.lists(st.tuples(st.integers(0, 90), st.integers(0, 6)), min_size=1, max_size=6),
    workers=st.integers(2, 7),
    topology=st.sampled_from(TOPOLOGIES),
    codec=st.sampled_from(CODECS),
    seed=st.integers(0, 2**16),
    late=st.booleans(),
)
@settings(max_examples=some(30), deadline=None)
def test_nothing_is_lost_whoever_leaves_and_when(leaves, workers, topology, codec, seed, late):
    world = world_of(workers, topology, codec, seed, late)
    for event in range(110):
        for at, rank in leaves:
            if at == event:
                world.leave(rank)
        world.happen()
    finish(world)


@given(
    leavers=st.sets(st.integers(0, 5), min_size=1, max_size=4),
    between=st.integers(0, 30),
    drains_first=st.booleans(),
    topology=st.sampled_from(TOPOLOGIES),
    codec=st.sampled_from(CODECS),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=12, deadline=None)
def test_nothing_is_lost_whoever_leaves_while_the_run_ends(leavers, between, drains_first, topology, codec, seed):
    """What goes around a leaver is waited for: all end alike (law 2), with the sum of all updates, nothing to mend."""
    world = world_of(6, topology, codec, seed)
    for _ in range(60):
        world.happen()
    ending = [rank for rank in sorted(world.actors) if rank not in leavers]

    def drain() -> None:
        for rank in ending:
            world.actors[rank].ended = True
            world.tell(rank, Ended())
            world.tell(rank, Draining())
            for _ in range(world.random.randint(0, between)):
                world.happen()

    if drains_first:
        drain()
    for rank in sorted(leavers):
        while not world.leave(rank):
            world.happen()
    if not drains_first:
        drain()
    world.settle()
    for _ in range(20_000):
        if not world.deliver() and all(world.actors[rank].finished for rank in ending):
            break
    assert sorted(world.actors) == ending and all(world.actors[rank].finished for rank in ending)
    for rank in ending:
        np.testing.assert_array_equal(np.asarray(world.actors[rank].shared).astype(np.float64), world.account.sent)
        assert world.method.figures(world.actors[rank].method_state)["repaired"] == 0.0


@pytest.mark.parametrize("seed", range(4))
def test_neighbours_that_leave_at_once_hand_each_others_updates_on(seed):
    """0 - 1 - 2 - 3 - 4: the three in the middle go together, each with something of the others under way to it."""
    world = world_of(5, "line", CODECS[0], seed)
    for _ in range(60):
        world.happen()
    for rank in (2, 1, 3):
        world.take_step(rank)
        world.leave(rank)
    finish(world)
    assert sorted(world.actors) == [0, 4]


def test_what_waited_for_one_that_died_goes_around_it():
    """0 - 1 - 2: worker 1 has one message of worker 0's, unconfirmed, and dies. The next ones were never sent to it."""
    world = world_of(3, "line", CODECS[0], seed=5, late=False)
    world.take_step(0)
    first = world.queues[(0, 1)].copy()
    for _ in range(5):
        world.take_step(0)
    assert [item.note.kind for item in first] == ["tree", "update"] and len(world.queues[(0, 1)]) == 2
    world.kill(1)
    world.settle()
    state = world.actors[2].method_state
    assert state.included == 5, "all but the one of which nobody knows"


def test_a_leaver_takes_nothing_more_and_answers_nothing():
    world = world_of(3, "line", CODECS[0], seed=1, late=False)
    world.take_step(0)
    tree, update = list(world.queues[(0, 1)])
    world.leave(1)
    world.queues[(0, 1)].clear()
    actions = world.method.on(world.actors[1].method_state, Heard(0, tree.note, tree.payload), 0.0)
    actions += world.method.on(world.actors[1].method_state, Heard(0, update.note, update.payload), 0.0)
    assert actions == []
    assert world.method.on(world.actors[1].method_state, MembersChanged(world.membership(1)), 0.0) == [], (
        "everybody has been told"
    )
    world.join()
    assert [item.note.kind for item in world.queues[(1, 3)]] == ["going"], "so is who comes later"


@pytest.mark.parametrize(
    ("kind", "numbers", "payload"),
    [
        ("update", [], b""),
        ("update", [1.0], b""),
        ("update", [float("nan"), 0.0], b""),
        ("update", [1.5, 0.0], b""),
        ("update", [1.0, 2.0], b""),  # no neighbour of worker 0's
        ("tree", [], b"abc"),
        ("tree", [], np.array([0, 1, 9], "<u4").tobytes()),  # not what its key says
    ],
)
def test_what_makes_no_sense_is_refused(kind, numbers, payload):
    world = world_of(3, "line", CODECS[0], seed=2, late=False)
    state = world.actors[0].method_state
    with pytest.raises(MalformedMessage):
        world.method.on(state, Heard(1, Note(kind, state.tree.key, 1, numbers), payload), 0.0)


def test_a_tree_that_this_worker_is_not_in_is_refused():
    world = world_of(3, "line", CODECS[0], seed=2, late=False)
    members = np.array([1, 2], "<u4")
    with pytest.raises(MalformedMessage):
        world.method.on(world.actors[0].method_state, Heard(1, Note("tree", tree_key((1, 2))), members.tobytes()), 0.0)


def test_rubbish_that_came_early_is_refused_when_it_can_be_read():
    world = world_of(2, "line", CODECS[0], seed=2, late=False)
    state, later = world.actors[0].method_state, tree_key((0, 1, 2))
    assert world.method.on(state, Heard(1, Note("update", later, 1, [1.0, 7.0]), b""), 0.0) == []
    world.join()
    assert [sender for sender, _ in world.refused] == [1]
    assert any(isinstance(each, Tell) for each in world.method.on(state, Leaving(), 0.0))
    assert not any(isinstance(each, Refuse) for each in world.method.on(state, Stepped(1), 0.0))

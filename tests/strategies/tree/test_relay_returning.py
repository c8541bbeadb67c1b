"""A relay that was given up and comes back: what it had sent counts once, whether or not that was confirmed."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leaving_worlds import LeavingWorld

from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.api import Heard, MembersChanged, Stepped, Tell
from taut.strategies.delivery.residual_handoff import ResidualHandoff
from taut.strategies.tree.relay import Relay
from taut.strategies.tree.unacknowledged import KINDS, Unsent

SIZE = 48


class Parting(LeavingWorld):
    """``cut_off(rank)``: nothing gets through to it or from it any more, it is given up, and trains on by itself;
    ``come_back``: under another rank, with a donor's state and what it had not got across."""

    away: dict[int, Any]

    def cut_off(self, ranks: list[int]) -> None:
        self.away = {rank: self.actors.pop(rank) for rank in ranks}
        self.version += 1
        self.queues = {pair: queue for pair, queue in self.queues.items() if not set(pair) & set(ranks)}
        for other in sorted(self.actors):  # those who are away are told nothing
            self.tell(other, MembersChanged(self.membership(other)))

    def train_alone(self, rank: int, steps: int) -> None:
        actor = self.away[rank]
        for _ in range(steps):
            self.step(actor)
            self.method.on(actor.method_state, Stepped(1), self.now)

    def come_back(self, rank: int, gone: set[int]) -> int:
        previous = self.away.pop(rank)
        donor = min(self.actors)
        self.take_step(donor)  # a donor includes what has come before it copies its state
        back = self.join()
        self.account.watch(self.actors[back])
        self.estates[back] = ResidualHandoff(lambda part: None)
        unsent = self.method.unsent(previous.method_state, gone)
        self._carry_out(back, self.method.welcomed(self.actors[back].method_state, unsent))
        return back

    def rest(self) -> None:
        while self.deliver():
            pass


def world_of(workers: int, topology: str, seed: int) -> Parting:
    noise = np.random.default_rng(seed)

    def step(actor: Any) -> int:
        actor.x += noise.normal(0, 0.2, SIZE).astype(np.float32)
        return 1

    return Parting(Relay(), workers, SIZE, "threshold:tau=2^-3", topology=topology, seed=seed, step=step)


def finish(world: Parting) -> None:
    world.rest()
    world.finish()
    shared = [np.asarray(actor.shared) for actor in world.actors.values()]
    assert len({hashlib.sha256(each.tobytes()).hexdigest() for each in shared}) == 1
    assert [world.method.figures(one.method_state)["repaired"] for one in world.actors.values()] == [0.0] * len(shared)
    np.testing.assert_array_equal(shared[0].astype(np.float64), world.account.sent)


@given(
    workers=st.integers(2, 5),
    topology=st.sampled_from(["line", "star"]),
    events=st.integers(0, 60),
    alone=st.integers(0, 4),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=20, deadline=None)
def test_what_it_did_counts_once_whatever_had_arrived(workers, topology, events, alone, seed):
    """The last worker hangs at one edge. Of what is under way over it at the cut, some has come, and some has not."""
    world = world_of(workers, topology, seed)
    for _ in range(events):
        world.happen()
    last = workers - 1
    world.cut_off([last])
    world.train_alone(last, alone)
    world.rest()
    world.come_back(last, {last})
    finish(world)


@pytest.mark.parametrize("arrived", [True, False], ids=["confirmation lost", "message lost"])
@pytest.mark.parametrize("first", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_two_that_were_cut_off_together_ask_each_other(arrived, first, seed):
    """0 - 1 - 2: both 1 and 2 are given up, with a message from 2 to 1 of which 2 does not know; they come back in either
    order, under other ranks, and the one who took it passes it on."""
    world = world_of(3, "line", seed)
    for _ in range(30):
        world.happen()
    world.rest()
    world.take_step(2)
    if arrived:
        for item in world.queues.pop((2, 1)):
            world.tell(1, Heard(2, item.note, item.payload))
    world.cut_off([1, 2])
    world.train_alone(1, 2)
    world.train_alone(2, 2)
    world.rest()
    for rank in (first, 3 - first):
        world.come_back(rank, {1, 2})
        world.rest()
    finish(world)


def test_where_nobody_can_tell_it_is_published_at_the_end():
    """0 - 1 - 2, and 1 is dead: once at least."""
    world = world_of(3, "line", seed=1)
    world.take_step(2)
    world.cut_off([1, 2])
    world.come_back(2, {1, 2})
    world.rest()
    state = world.actors[3].method_state
    assert len(state.unacknowledged.open) == 1 and not state.unacknowledged.open[0].awaited
    finish(world)
    assert not state.unacknowledged.open


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("numbers", [[], [1.0, 2.0], [1.0, 2.0, float("nan")], [1.0, -2.0, 3.0]])
def test_questions_and_answers_that_make_no_sense_are_refused(kind, numbers):
    world = world_of(2, "line", seed=1)
    state = world.actors[0].method_state
    with pytest.raises(MalformedMessage):
        world.method.on(state, Heard(1, Note(kind, state.tree.key, 0, numbers), b""), 0.0)


def test_an_answer_that_nobody_asked_for_publishes_nothing():
    world = world_of(2, "line", seed=1)
    state = world.actors[0].method_state
    assert world.method.on(state, Heard(1, Note("missed", state.tree.key, 0, [5.0, 1.0, 1.0]), b""), 0.0) == []
    asked = world.method.on(state, Heard(1, Note("took?", state.tree.key, 0, [5.0, 9.0, 1.0]), b""), 0.0)
    assert [(each.to, each.note.kind) for each in asked if isinstance(each, Tell)] == [(1, "unknown")]
    assert isinstance(world.method.unsent(state, {0, 1})[0], Unsent)

"""Of every method: a worker that leaves in order takes nothing with it, neither its last steps nor what others had under
way to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.strategies.api import Leaving
from taut.strategies.compatibility import default_topology
from taut.strategies.registry import REGISTRY, parse
from taut.testing.worlds.codec_actor import with_codec, with_coder
from taut.testing.worlds.method_world import MethodWorld

# Whose models are each worker's own; and one whose consensus is, by its definition, over those who are there.
OWN = {"codistillation", "admm"}
METHODS = [name for name in REGISTRY if parse(name).is_method]
CASES = [
    *sorted(name for name in METHODS if name not in OWN and parse(name).method().vector == "weights"),
    *("server:push=5", "server:shards=2", "adpsgd:every=4", "dpsgd:every=3", "diloco:every=4", "averaging:every=2"),
    *("easgd:every=3", "fedavg:steps=3", "dynamic:threshold=100", "diloco:every=3,delayed=true"),
    *("sparseloco:every=3", "noloco:every=3", "diloco:every=3,eager=true", "diloco:every=3,quorum=2"),
]
SIZE, MARK, THEIRS = 16, 12, 13


class Drainable(MethodWorld):
    """Worker ``leaver`` is asked to go, and does as ``worker/exchange/rounds.py`` has it."""

    def __init__(self, strategy: str, seed: int, leaver: int) -> None:
        choice = parse(strategy)
        method = choice.method()
        self.leaver = leaver
        self.marked: dict[int, int] = {}  # who is to mark its next step, and where
        codec: Any = with_codec("dense", 4) if method.streams else None
        if not method.streams and method.codecs[0] != "dense":
            codec = with_coder("dense", 4) if "dense" in method.codecs else with_coder(method.codecs[0], 4)
        topology = default_topology(choice)
        super().__init__(
            method, [np.zeros(SIZE, np.float32)] * 4, topology=topology, seed=seed, step=self.train, actor=codec
        )

    def train(self, actor: Any) -> int:
        actor.x[:8] += np.float32(0.5)
        if actor.rank in self.marked:  # of choco a large one: it sends the largest changes only
            actor.x[self.marked.pop(actor.rank)] += np.float32(400.0 if self.method.name == "choco" else 4.0)
        return 1

    def until(self, condition: Any, ranks: list[int]) -> None:
        for _ in range(20_000):
            if condition():
                return
            self._happen(ranks)
        raise AssertionError("it waits for ever")

    def others(self) -> list[int]:
        return [rank for rank in sorted(self.actors) if rank != self.leaver]

    def last_step(self) -> None:
        actor = self.actors[self.leaver]
        self.until(lambda: actor.proceed and not self.method.owed(actor.method_state), sorted(self.actors))
        self.marked[self.leaver] = MARK
        self.catch_up(self.leaver)
        self.take_step(self.leaver)
        assert self.leaver not in self.marked
        self.until(lambda: actor.proceed, self.others())

    def step_of_another(self, rank: int) -> bool:
        """One more, if it may, with what it sends to the leaver still under way."""
        if self.actors[rank].proceed and not self.method.owed(self.actors[rank].method_state):
            self.marked[rank] = THEIRS
            self.catch_up(rank)
            self.take_step(rank)
            return True
        return False

    def leave(self) -> None:
        actor, method = self.actors[self.leaver], self.method
        actor.ended = True
        self.catch_up(self.leaver)
        self.tell(self.leaver, Leaving())

        def shared() -> bool:
            if actor.proceed and method.owing(actor.method_state) and method.lockstep:
                self.take_step(self.leaver)
            return actor.proceed and not method.owing(actor.method_state)

        self.until(shared, self.others())
        for _ in range(2):  # a server is never through: others ask it until they hear that it is gone
            posted = [(rank, len(self.queues.get((self.leaver, rank), ()))) for rank in self.actors]
            for rank, count in posted:
                for _ in range(count):
                    self._hear(rank, self.queues[(self.leaver, rank)].popleft())
        for rank in self.others():
            self.catch_up(rank)  # what has come waits for the end of a step, and is there then, whoever is gone
        self.kill(self.leaver)


@pytest.mark.parametrize("strategy", CASES)
@given(seed=st.integers(0, 2**16), events=st.integers(0, 150), leaver=st.integers(0, 3))
@settings(max_examples=5, deadline=None)
def test_its_last_step_is_with_the_others(strategy: str, seed: int, events: int, leaver: int) -> None:
    world = Drainable(strategy, seed, leaver)
    for _ in range(events):
        world._happen(sorted(world.actors))
    world.last_step()
    other = (leaver + 1 + seed % 3) % 4
    theirs = world.step_of_another(other)
    world.leave()
    world._quiet()
    for _ in range(200):
        world._happen(sorted(world.actors))
    world.finish()
    assert max(float(actor.x[MARK]) for actor in world.actors.values()) > 0.01
    # Where all end with one model, what another one did is in it; elsewhere it is at least in its own.
    assert not theirs or max(float(actor.x[THEIRS]) for actor in world.actors.values()) > 0.01


def test_every_method_is_asked() -> None:
    named = {case.partition(":")[0] for case in CASES}
    gradients = {name for name in METHODS if parse(name).method().vector == "gradients"}
    assert named | OWN | gradients == set(METHODS)


@pytest.mark.parametrize("strategy", CASES)
def test_who_is_alone_goes_at_once(strategy: str) -> None:
    world = Drainable(strategy, seed=1, leaver=3)
    for rank in (0, 1, 2):
        world.kill(rank)
    world._quiet()
    world.until(lambda: world.actors[3].proceed, [])
    world.actors[3].ended = True
    world.tell(3, Leaving())
    assert not world.method.owing(world.actors[3].method_state)

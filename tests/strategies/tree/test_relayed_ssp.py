"""Relayed ssp: nobody gets more than its slack ahead, and nobody waits for ever on any topology, whoever dies, joins,
ends, or waits for data; all replicas end alike."""

from __future__ import annotations

import random

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from test_relay import hashes

from taut.core.events import Ended
from taut.core.messages import Note
from taut.errors import MalformedMessage, Misuse
from taut.strategies.compatibility import combine
from taut.strategies.registry import on_topology, parse
from taut.strategies.tree.clocks import CLOCK
from taut.strategies.tree.relay import Relay
from taut.testing.worlds.codec_actor import with_codec
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld

SIZE = 32
TOPOLOGIES = ("ring", "line", "star", "tree", "torus", "exponential", "one-peer")


class Paced(MethodWorld):
    """Looks at the law whenever a worker takes a step. ``joined``: workers that came in mid-run, and may be behind while
    the others do not know of them."""

    joined: frozenset[int] = frozenset()

    def take_step(self, rank: int, catches_up: bool = False) -> None:
        actor = self.actors[rank]
        if actor.proceed and not actor.finished and not actor.ended:
            # At the start it may be told to go on, and then begin level with what it hears, before it does.
            mine = min(actor.steps, actor.method_state.clocks.clock)
            for other, theirs in self.actors.items():
                if not theirs.ended and other not in self.joined and rank not in self.joined:
                    assert mine <= theirs.method_state.clocks.clock + self.method.slack  # type: ignore[attr-defined]
        super().take_step(rank, catches_up)


def world_of(slack: int, workers: int, topology: str, seed: int, lossy: bool = False) -> Paced:
    start = np.random.default_rng(seed).normal(0, 0.1, SIZE).astype(np.float32)
    noise = np.random.default_rng(seed + 1)

    def step(actor: Actor) -> int:
        actor.x += noise.normal(0, 0.02, SIZE).astype(np.float32)
        return 1

    speeds = [random.Random(seed + rank).choice([0.1, 1.0, 3.0]) for rank in range(workers + 8)]
    return Paced(
        Relay(slack=slack),
        [start.copy() for _ in range(workers)],
        topology=topology,
        seed=seed,
        step=step,
        lossy=lossy,
        speeds=speeds,
        actor=with_codec("tether", workers),
    )


@given(
    seed=st.integers(0, 2**31),
    slack=st.integers(0, 5),
    workers=st.integers(1, 8),
    topology=st.sampled_from(TOPOLOGIES),
    lossy=st.booleans(),
)
@settings(max_examples=some(60), deadline=None)
def test_nobody_gets_more_than_the_slack_ahead(seed: int, slack: int, workers: int, topology: str, lossy: bool) -> None:
    world = world_of(slack, workers, topology, seed, lossy)
    world.run(12, ends=True)
    world.finish()
    assert len(hashes(world)) == 1


@given(seed=st.integers(0, 2**31), slack=st.integers(0, 3), topology=st.sampled_from(TOPOLOGIES))
@settings(max_examples=some(60), deadline=None)
def test_nobody_waits_for_ever_whoever_dies_or_joins(seed: int, slack: int, topology: str) -> None:
    choose = random.Random(seed)
    world = world_of(slack, choose.randint(1, 6), topology, seed, lossy=choose.random() < 0.3)
    for _ in range(choose.randint(1, 5)):
        for _ in range(choose.randint(0, 60)):
            world._happen(sorted(world.actors))
        if len(world.actors) > 1 and choose.random() < 0.5:
            world.kill(choose.choice(sorted(world.actors)))
        for _ in range(choose.choice([0, 0, 1, 2])):
            world.joined |= {world.join()}
    world.run(choose.randint(5, 20), limit=60_000, ends=True)
    clocks = [actor.method_state.clocks for actor in world.actors.values()]
    assert not any(clock.pending for clock in clocks)
    world.finish()
    assert len(hashes(world)) == 1


def test_a_newcomer_begins_level_with_the_slowest() -> None:
    world = world_of(2, 3, "line", seed=1)
    world.run(50)
    assert min(actor.method_state.clocks.clock for actor in world.actors.values()) >= 50
    first, second = world.join(), world.join()
    world.joined = frozenset({first, second})
    world.run(3)
    assert all(world.actors[rank].method_state.clocks.clock >= 50 for rank in (first, second))


def test_who_waits_for_data_or_has_ended_holds_nobody_back() -> None:
    world = world_of(1, 3, "line", seed=2)
    world.run(4)
    idle = world.actors[2]

    def train(steps: int) -> None:
        goal = world.actors[0].steps + steps
        for _ in range(10_000):
            if world.actors[0].steps >= goal:
                return
            for rank in (0, 1):
                world.take_step(rank, catches_up=True)
            if not idle.ended and idle.proceed:
                idle.io.begin(0, True)  # a turn without data
            world._quiet()
        raise AssertionError("workers 0 and 1 wait for ever")

    train(20)
    assert idle.steps < 10
    idle.ended = True
    world.tell(2, Ended())
    train(20)


@pytest.mark.parametrize("slack", [0, 2, 5])
def test_the_fastest_waits_exactly_at_its_slack(slack: int) -> None:
    world = world_of(slack, 3, "line", seed=3)
    alone = 0
    while world.actors[0].proceed:
        world.take_step(0)
        world._quiet()
        alone += 1
    assert alone == slack + 1
    for rank in (1, 2):
        world.take_step(rank)
        world._quiet()
    assert world.actors[0].proceed


def test_ssp_is_relayed_with_its_slack() -> None:
    assert on_topology(parse("ssp:4"), "torus").method() == Relay(slack=4)
    assert on_topology(parse("ssp"), "ring").method() == Relay(slack=3)
    assert combine("ssp:4", "ring", workers=5).strategy.name == "relay"
    assert on_topology(parse("async"), "ring").method() == Relay()
    with pytest.raises(Misuse, match="slack=-2"):
        parse("relay:-2")


def test_clocks_that_make_no_sense_are_refused() -> None:
    world = world_of(1, 3, "line", seed=4)
    world.run(2)
    state = world.actors[0].method_state
    for sender, numbers in [(2, [1.0, 1.0, 0.0]), (1, []), (1, [1.0]), (1, [-2.0, 0.0, 0.0]), (1, [1.0, 0.5, 0.0])]:
        with pytest.raises(MalformedMessage):
            state.clocks.hear(sender, numbers)
    assert Note(CLOCK, 0, 0, [1.0, 0.0, 0.0]).kind == "clock"

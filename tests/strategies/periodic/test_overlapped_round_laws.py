"""A round that is held up holds up nobody's training, and is the same round when it ends (laws 4 and 5)."""

from __future__ import annotations

import numpy as np
import pytest
from examples import some
from gossip_histories import starts, wander
from hypothesis import example, given, settings
from hypothesis import strategies as st

from taut.strategies.api import HeldUp, Method
from taut.strategies.gossip.choco import Choco
from taut.strategies.gossip.dpsgd import DPSGD
from taut.strategies.gossip.gossipgrad import GossipGraD
from taut.strategies.gossip.momentum import QuasiGlobalMomentum
from taut.strategies.gossip.relaysgd import RelaySGD
from taut.strategies.gossip.sgp import SGP, SGPState, debiased
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld

SEEDS = st.integers(0, 10**6)
CONSERVING: list[tuple[Method, str]] = [
    (DPSGD(), "ring"),
    (DPSGD(every=3), "star"),
    (DPSGD(), "matcha"),
    (DPSGD(mixing="uniform"), "one-peer"),
    (DPSGD(tracking=True), "torus"),
    (DPSGD(momentum="quasi-global"), "ring"),
    (GossipGraD(), "complete"),
    (Choco(), "ring"),
]


def level(world: MethodWorld) -> None:
    """Without any more training, until everybody has ended the same round and trains on alone no more."""
    world.hold_ups, world.step = 0.0, lambda actor: 1
    states = {rank: actor.method_state for rank, actor in world.actors.items()}
    target = 2 + max(state.round for state in states.values())
    while any(state.round < target or state.turn or state.drift.under_way for state in states.values()):
        able = [rank for rank, actor in world.actors.items() if actor.proceed and states[rank].round < target]
        assert able or any(world.queues.values())
        for rank in able:
            world.catch_up(rank)
            world.take_step(rank)
        while world.deliver():
            pass


def total(world: MethodWorld) -> np.ndarray:
    return np.sum(np.stack(world.vectors()).astype(np.float64), axis=0)


def stepped(made: list[int]) -> float:
    """What ``wander`` has moved all of them by, together, in so many steps of each."""
    return sum(0.01 * ((rank + 3 * step) % 7 - 3) for rank, steps in enumerate(made) for step in range(steps))


def trained(world: MethodWorld, steps: int) -> list[int]:
    """The steps that each has made when the last has made so many."""
    world.run(steps, freely=True)
    return [actor.steps for _, actor in sorted(world.actors.items())]


@pytest.mark.parametrize(("method", "topology"), CONSERVING, ids=str)
@settings(max_examples=some(6), deadline=None)
@given(workers=st.integers(2, 7), seed=SEEDS)
def test_the_mean_moves_by_the_steps_alone_whoever_was_held_up(
    method: Method, topology: str, workers: int, seed: int
) -> None:
    world = MethodWorld(method, starts(workers, seed=seed), topology=topology, seed=seed, step=wander, hold_ups=0.2)
    before = total(world)
    made = trained(world, 12)
    level(world)
    assert total(world) == pytest.approx(before + stepped(made), abs=5e-5)
    assert any(actor.method_state.drift.held_up for actor in world.actors.values()) or workers < 4


def own_moves(state: SGPState) -> np.ndarray:
    """What the worker has moved by that is in no share yet."""
    if state.drift.then is not None:
        return state.local.x - state.drift.then[0]
    return state.local.x - debiased(state) if state.turn is None else np.zeros_like(state.x)


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS, overlap=st.sampled_from([0, 2]), topology=st.sampled_from(["exponential", "one-peer"]))
@example(12499, 2, "one-peer")  # the end comes while a turn waits, and nothing more arrives
def test_push_sum_conserves_weight_and_sum_whoever_was_held_up(seed: int, overlap: int, topology: str) -> None:
    world = MethodWorld(SGP(overlap), starts(5, seed=seed), topology=topology, seed=seed, step=wander, hold_ups=0.2)
    before = total(world)
    made = trained(world, 9)
    if seed % 2:
        world.finish()  # while some are held up
    elif not overlap:
        level(world)
    states = [actor.method_state for actor in world.actors.values()]
    under_way = [one for state in states for one in state.inbox.values()]
    weight = sum(state.w for state in states) + sum(one.note.numbers[0] for one in under_way)
    assert weight == pytest.approx(5.0, abs=1e-9)
    x = sum(state.x.astype(np.float64) + own_moves(state) for state in states)
    x += sum(np.frombuffer(one.payload, np.float32).astype(np.float64) for one in under_way)
    assert x == pytest.approx(before + stepped(made), abs=2e-4)


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, more=st.integers(1, 5))
def test_tracking_still_sums_to_the_gradients(seed: int, more: int) -> None:
    """sum y = sum g, in a round that was held up as in any other."""
    method, rng = DPSGD(tracking=True), np.random.default_rng(seed)

    def step(actor: Actor) -> int:
        gradient = rng.standard_normal(3).astype(np.float32)
        method.shape_gradient(actor.method_state, gradient, 0.1)
        actor.x -= np.float32(0.1) * gradient
        return 1

    world = MethodWorld(method, starts(4, 3), topology="ring", seed=seed, step=step, hold_ups=0.2)
    world.run(4 + more, freely=True)
    tracked = [actor.method_state.tracking for actor in world.actors.values()]
    world.hold_ups = 0.0
    states = {rank: actor.method_state for rank, actor in world.actors.items()}
    target = 2 + max(state.round for state in states.values())
    while any(state.round < target for state in states.values()):
        for rank, actor in world.actors.items():
            if actor.proceed and states[rank].round < target:
                world.catch_up(rank)
                world.take_step(rank)
        while world.deliver():
            pass
    np.testing.assert_allclose(sum(one.y for one in tracked), sum(one.gradient for one in tracked), atol=2e-5)


@pytest.mark.parametrize("method", [DPSGD(), DPSGD(robust="median"), GossipGraD(), RelaySGD(), SGP(), Choco()], ids=str)
@settings(max_examples=5, deadline=None)
@given(seed=SEEDS, steps=st.integers(1, 6))
def test_a_round_that_was_held_up_is_the_one_it_would_have_been(method: Method, seed: int, steps: int) -> None:
    """Of two like worlds, one in which worker 1 is late, and the others train on: the same mix, and their own moves."""
    moves = np.random.default_rng(seed).standard_normal((3, 16, 4)).astype(np.float32)

    def step(actor: Actor) -> int:
        actor.x += moves[actor.rank, actor.steps]
        return 1

    calm, late = (MethodWorld(method, starts(3, seed=seed), topology="complete", seed=seed, step=step) for _ in range(2))
    for world in (calm, late):
        world.run(2)
    calm.run(1)
    for rank in (0, 2):
        late.take_step(rank)
        while late.deliver():
            pass
        late.tell(rank, HeldUp())
        for _ in range(steps):
            assert late.actors[rank].proceed
            late.take_step(rank)
    late.take_step(1)
    while late.deliver():
        pass
    for rank in (0, 2):
        apart = late.actors[rank].x.copy()
        late.catch_up(rank)
        np.testing.assert_array_equal(late.actors[rank].x, apart)  # it is the worker's own until its next turn
        own = moves[rank, 3 : 4 + steps].sum(axis=0)
        actor, state = late.actors[rank], late.actors[rank].method_state
        late.take_step(rank)
        np.testing.assert_allclose(actor.x, calm.actors[rank].x + own, rtol=1e-4, atol=1e-4)
        assert state.drift.figures() == {"held_up": 1.0, "drifted": float(steps + 1)} and not state.drift.under_way


def test_whoever_is_given_up_frees_those_it_held_up() -> None:
    """The members change: nobody drifts any more, and all keep what they have."""
    world = MethodWorld(DPSGD(), starts(4), topology="ring", step=wander)
    for rank in (1, 2, 3):
        world.take_step(rank)
        world.tell(rank, HeldUp())
        world.take_step(rank)
    before = [world.actors[rank].x.copy() for rank in (1, 2, 3)]
    world.kill(0)
    np.testing.assert_array_equal([world.actors[rank].x for rank in (1, 2, 3)], before)
    assert not any(world.method.drifting(world.actors[rank].method_state) for rank in (1, 2, 3))
    world.run(5)
    assert {world.actors[rank].method_state.round for rank in (1, 2, 3)} == {5}


def test_who_has_no_data_waits_for_the_round_that_was_held_up() -> None:
    """It has nothing to train on instead, and would go round and round."""
    world = MethodWorld(DPSGD(), starts(3), topology="ring", step=wander)
    world.take_step(0)
    world.tell(0, HeldUp())
    world.actors[0].ended = True
    world.take_step(0)
    assert not world.actors[0].proceed
    world.tell(0, HeldUp())
    assert not world.actors[0].proceed


def test_momentum_counts_the_steps_that_were_made_meanwhile() -> None:
    """Each step moves x by -rate. Worker 0 makes seven to each of worker 1: their mean moves by 4, over 7 of worker 0."""
    method = DPSGD(momentum="quasi-global", mu=0.5)

    def step(actor: Actor) -> int:
        actor.x -= np.float32(0.1)
        return 1

    world = MethodWorld(method, [np.zeros(1, np.float32)] * 2, step=step, rate=0.1)
    memories: list[QuasiGlobalMomentum] = [actor.method_state.momentum for actor in world.actors.values()]
    for _ in range(8):
        world.take_step(0)
        world.tell(0, HeldUp())
        for _ in range(6):
            world.take_step(0)
        world.take_step(1)
        world.run(0)
    assert memories[0].m.item() == pytest.approx(4 / 7, rel=0.02)

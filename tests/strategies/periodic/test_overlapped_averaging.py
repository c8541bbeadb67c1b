"""Averages and centres that are held up hold up nobody's training, and are the same when they come (laws 4 and 5)."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from averaging_worlds import Watched, starts, wander
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.strategies.api import HeldUp
from taut.strategies.periodic.diloco import DiLoCo
from taut.strategies.periodic.dynamic import Dynamic
from taut.strategies.periodic.fedavg import FedAvg
from taut.strategies.registry import parse
from taut.strategies.server.easgd import EASGD
from taut.testing.worlds.method_actor import Actor, Vector
from taut.testing.worlds.method_world import MethodWorld

SEEDS = st.integers(0, 10**6)
ROUNDS = [
    "averaging:every=2",
    "averaging:every=2,robust=median",
    "fedavg:fraction=1,steps=2",
    "fedavg:fraction=1,steps=2,robust=median",
    "diloco:every=2",
    "sparseloco:every=2",
    "diloco:every=4,fragments=2",
    "diloco:every=4,fragments=2,overlap=1,mixing=0.25",
    "admm:rho=0.1,every=2",
    "dynamic:threshold=0,every=2",
]


def deliver_all(world: MethodWorld) -> None:
    while world.deliver():
        pass


def worlds(method: str, seed: int) -> tuple[MethodWorld, MethodWorld, Vector]:
    """Two that are alike, after three rounds, and each worker's moves."""
    moves = np.random.default_rng(seed).standard_normal((3, 64, 5)).astype(np.float32)

    def step(actor: Actor) -> int:
        actor.x += moves[actor.rank, actor.steps]
        return 1

    made = [Watched(parse(method).method(), starts(3), seed=seed, step=step) for _ in range(2)]
    for world in made:
        for _ in range(6):
            _all_step(world)
    return made[0], made[1], moves


def _all_step(world: MethodWorld, ranks: tuple[int, ...] = (0, 1, 2)) -> None:
    for rank in ranks:
        assert world.actors[rank].proceed
        world.catch_up(rank)
        world.take_step(rank)
    deliver_all(world)


@pytest.mark.parametrize("method", ROUNDS)
@settings(max_examples=5, deadline=None)
@given(seed=SEEDS, more=st.integers(1, 9))
def test_an_average_that_was_held_up_is_the_one_it_would_have_been(method: str, seed: int, more: int) -> None:
    """Worker 1 is late for its round; the others train on: the same outcome for them, and their own moves."""
    calm, late, moves = worlds(method, seed)
    while not any(not late.actors[rank].proceed for rank in (0, 2)):  # a round: as many steps as this method takes
        _all_step(calm)
        _all_step(late, (0, 2))
    at = late.actors[0].steps
    for rank in (0, 2):
        late.tell(rank, HeldUp())
    for _ in range(more):
        _all_step(late, (0, 2))
    before = [late.actors[rank].x.copy() for rank in (0, 2)]
    while late.actors[1].steps < at:
        _all_step(late, (1,))
    while late.deliver() or late.held:
        for rank in (0, 2):
            late.catch_up(rank)
    np.testing.assert_array_equal([late.actors[rank].x for rank in (0, 2)], before)  # their own until their next turn
    for rank in (0, 2):
        late.take_step(rank)
        own = moves[rank, at : at + more + 1].sum(axis=0)
        np.testing.assert_allclose(late.actors[rank].x, calm.actors[rank].x + own, rtol=1e-3, atol=1e-4)
        assert late.method.figures(late.actors[rank].method_state)["drifted"] == more + 1


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, workers=st.integers(1, 5), every=st.integers(1, 3), lossy=st.booleans())
def test_easgd_conserves_the_sum_whoever_was_held_up(seed: int, workers: int, every: int, lossy: bool) -> None:
    made = np.zeros(7)

    def step(actor: Actor) -> int:
        before = actor.x.copy()
        wander(actor)
        made[:] += actor.x - before
        return 1

    world = Watched(EASGD(every=every), starts(workers, 7), seed=seed, step=step, lossy=lossy, hold_ups=0.2)
    world.run(12, freely=True)
    world.hold_ups, world.step = 0.0, lambda actor: 1
    centers = {rank: actor.method_state.center for rank, actor in world.actors.items()}
    while any(center.asking for center in centers.values()):
        for rank, center in centers.items():
            if center.asking:
                world.take_step(rank)
        world._quiet()
    held = np.zeros(7)
    for center in centers.values():
        for shard in center.held():
            held[center.part(shard)] = center.view[center.part(shard)]
    np.testing.assert_allclose(held + np.sum(world.vectors(), axis=0), (workers + 1) * np.arange(7.0) + made, atol=1e-4)
    assert not any(center.drift.under_way for center in centers.values())


def test_a_centre_whose_holder_dies_is_asked_again_with_what_was_given() -> None:
    """Worker 1 never answers. Worker 0 trains on for ten steps, then gets the pull that it asked for, and no other."""
    moves: list[float] = []

    def step(actor: Actor) -> int:
        actor.x += np.float32(1.0)
        moves.append(1.0)
        return 1

    world = Watched(EASGD(every=2, alpha=0.5, shards=2), [np.zeros(2, np.float32)] * 2, step=step)
    for _ in range(2):
        world.take_step(0)
    assert not world.actors[0].proceed
    world.tell(0, HeldUp())
    for _ in range(10):
        assert world.actors[0].proceed
        world.take_step(0)
    before = world.actors[0].x.copy()
    world.kill(1)  # the receiver is worker 0 itself
    np.testing.assert_array_equal(world.actors[0].x, before)
    state = world.actors[0].method_state
    world.take_step(0)
    # 2 steps, then half of the way back to 0; 11 steps, then half of the way to the centre, which is at 1 since.
    assert state.exchanges == 2 and world.actors[0].x.tolist() == [6.5, 6.5] and state.center.view.tolist() == [6.5, 6.5]


@settings(max_examples=some(15), deadline=None)
@given(seed=SEEDS, more=st.integers(1, 5))
def test_delayed_diloco_pushes_what_it_did_meanwhile(seed: int, more: int) -> None:
    """The answer of worker 1 is late: x is its theta and what worker 0 has moved by, which is in the next push, once."""

    def step(actor: Actor) -> int:
        actor.x += np.float32(1.0)
        return 1

    method = DiLoCo(every=2, outer_rate=1.0, outer_momentum=0.0, delayed=True)
    world = Watched(method, [np.zeros(16, np.float32)] * 2, step=step, seed=seed)
    for _ in range(2):
        world.take_step(0)
    while world.deliver():  # worker 1 hears, and its answer stays away
        kept = world.queues.pop((1, 0), deque())
        if kept:
            break
    world.tell(0, HeldUp())
    for _ in range(more):
        assert world.actors[0].proceed
        world.take_step(0)
    world.queues[1, 0] = kept
    deliver_all(world)
    assert world.actors[0].x.tolist()[1] == 2 + more  # not while it trains
    world.take_step(0)
    deliver_all(world)
    state, moved = world.actors[0].method_state, more + 1
    pushed = moved if moved >= 2 else 0
    # Of each push half is taken, for there are two workers: theta was 1 after the first.
    np.testing.assert_allclose(state.server.base, 1 + pushed / 2, rtol=1e-6)
    np.testing.assert_allclose(world.actors[0].x, 1 + (pushed / 2 if pushed else moved), rtol=1e-6)


def test_who_is_not_chosen_trains_on_too_and_its_work_counts() -> None:
    method = FedAvg(fraction=0.5, steps=2, seed=1)
    world = Watched(method, starts(4), step=wander, seed=2)
    world.run(3, freely=True)
    chosen = method.draw((0, 1, 2, 3), world.actors[0].method_state.group.completed)
    for _ in range(400):
        world._happen([rank for rank in range(4) if rank not in chosen])
    spare = min(rank for rank in range(4) if rank not in chosen)
    assert not world.actors[spare].proceed
    world.tell(spare, HeldUp())
    for _ in range(3):
        assert world.actors[spare].proceed
        world.take_step(spare)
    state = world.actors[spare].method_state
    samples = state.samples
    assert samples > 0
    for _ in range(2000):
        if state.rounds and not state.begun:
            break
        world._happen(sorted(world.actors))
    world.run(4, freely=True)
    assert state.chosen > 0 and state.drift.held_up == 1


def test_who_strayed_trains_on_without_the_verdict() -> None:
    """The coordinator's verdict is late: two that strayed to opposite sides go on from their mean, plus their moves."""

    def step(actor: Actor) -> int:
        actor.x += np.float32((0.0, 2.0, -2.0, 0.0)[actor.rank])
        return 1

    world = Watched(Dynamic(threshold=1.0, every=1), [np.zeros(1, np.float32)] * 4, step=step)
    world.take_step(1)
    deliver_all(world)
    assert not world.actors[1].proceed  # it waits to be judged
    world.tell(1, HeldUp())
    for _ in range(3):
        assert world.actors[1].proceed
        world.take_step(1)
    world.take_step(2)
    deliver_all(world)
    assert world.actors[1].x.item() == 8.0  # its own until its next turn
    world.take_step(1)
    deliver_all(world)
    # The mean of 2 and -2, and four steps since; then it has strayed again.
    assert world.actors[1].x.item() == 8.0 and world.actors[1].method_state.counts["strays"] == 2
    assert world.actors[2].x.item() == 0.0

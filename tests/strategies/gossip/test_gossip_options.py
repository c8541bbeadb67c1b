"""Quasi-global momentum, gradient tracking, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from taut.errors import Misuse
from taut.strategies import parse
from taut.strategies.api import Method
from taut.strategies.gossip.dpsgd import DPSGD
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld
from taut.topologies.registry import parse as parse_topology

WORKERS, SIZE, RATE = 5, 3, 0.1
numbers = np.random.default_rng(0)
CURVES = numbers.uniform(0.5, 1.5, size=(WORKERS, SIZE))
TARGETS = numbers.normal(size=(WORKERS, SIZE))
BEST = (CURVES * TARGETS).sum(0) / CURVES.sum(0)  # of sum_i |x - t_i|^2 weighted by curves: nobody's own target


def gradient(rank: int, x: np.ndarray) -> np.ndarray:
    return CURVES[rank] * (x - TARGETS[rank])


def quadratic(method: Method, rounds: int, rate: float = RATE) -> MethodWorld:
    """Every worker descends its own bowl; together they look for the bottom of the sum."""

    def step(actor: Actor) -> int:
        slope = gradient(actor.rank, actor.x).astype(np.float32)
        if method.shapes_gradient:
            method.shape_gradient(actor.method_state, slope, rate)
        actor.x -= np.float32(rate) * slope
        return 1

    start = [np.zeros(SIZE, np.float32)] * WORKERS
    world = MethodWorld(method, start, topology="ring", step=step, rate=rate, seed=1)
    world.run(rounds)
    return world


def test_quasi_global_momentum_is_the_published_equation() -> None:
    mixing = parse_topology("ring").wire(range(WORKERS)).matrix()
    x, m = np.zeros((WORKERS, SIZE)), np.zeros((WORKERS, SIZE))
    for _ in range(12):
        slope = np.stack([gradient(rank, x[rank]) for rank in range(WORKERS)])
        mixed = mixing @ (x - RATE * (slope + 0.8 * m))
        m = 0.8 * m + 0.2 * (x - mixed) / RATE
        x = mixed
    world = quadratic(DPSGD(momentum="quasi-global", mu=0.8), 12)
    assert np.stack(world.vectors()) == pytest.approx(x, abs=1e-5)


def test_gradient_tracking_is_the_published_equation() -> None:
    mixing = parse_topology("ring").wire(range(WORKERS)).matrix()
    x, y, old = (np.zeros((WORKERS, SIZE)) for _ in range(3))
    for _ in range(12):
        slope = np.stack([gradient(rank, x[rank]) for rank in range(WORKERS)])
        y, old = y + slope - old, slope
        x, y = mixing @ (x - RATE * y), mixing @ y
    world = quadratic(DPSGD(tracking=True), 12)
    assert np.stack(world.vectors()) == pytest.approx(x, abs=1e-5)
    tracked = sum(actor.method_state.tracking.y for actor in world.actors.values())
    slopes = sum(actor.method_state.tracking.gradient for actor in world.actors.values())
    assert tracked == pytest.approx(slopes, abs=1e-5)


def test_tracking_removes_the_bias_that_different_data_leaves() -> None:
    """At a constant rate D-PSGD stops short of consensus; tracking ends at the bottom of the sum."""
    plain = quadratic(DPSGD(), 300)
    tracked = quadratic(DPSGD(tracking=True), 300)
    assert plain.spread() > 0.02
    assert tracked.spread() < 1e-4
    for x in tracked.vectors():
        assert x == pytest.approx(BEST, abs=1e-3)


def test_tracking_and_momentum_go_together() -> None:
    both = quadratic(DPSGD(tracking=True, momentum="quasi-global", mu=0.5), 400, rate=0.05)
    for x in both.vectors():
        assert x == pytest.approx(BEST, abs=1e-2)


def test_tracked_sums_agree_again_after_a_death_and_a_join() -> None:
    world = quadratic(DPSGD(tracking=True), 10)
    world.kill(2)
    states = [actor.method_state.tracking for actor in world.actors.values()]
    assert sum(state.y for state in states) == pytest.approx(sum(state.gradient for state in states), abs=1e-6)


def test_a_turn_without_data_leaves_the_momentum_alone() -> None:
    world = quadratic(DPSGD(momentum="quasi-global"), 5)
    before = world.actors[0].method_state.momentum.m.copy()
    for actor in world.actors.values():
        actor.ended = True
        world.take_step(actor.rank)
    while world.deliver():
        pass
    assert world.actors[0].method_state.momentum.m.tobytes() == before.tobytes()
    assert world.actors[0].method_state.momentum.x.tobytes() == world.actors[0].x.tobytes()


@pytest.mark.parametrize("settings", [{"momentum": 0.9}, {"betas": (0.9, 0.999)}])
def test_two_momenta_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(Misuse, match=r"quasi-global with .*: expected .*without momentum.*try SGD\(momentum=0\)"):
        DPSGD(momentum="quasi-global").check_optimizer("Optimizer", settings)
    DPSGD().check_optimizer("Optimizer", settings)
    DPSGD(momentum="quasi-global").check_optimizer("SGD", {"lr": 0.1, "momentum": 0, "weight_decay": 1e-4})


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("dpsgd:mixing=metro", "mixing=metro: expected one of metropolis, uniform"),
        ("dpsgd:momentum=local", "momentum=local: expected one of none, quasi-global"),
        ("dpsgd:mu=1", "mu=1.0: expected a number above 0 and up to 0.9999"),
        ("dpsgd:tracking=perhaps", "yes or no"),
        ("sgp:overlap=-1", "overlap=-1: expected a whole number of at least 0"),
        ("adpsgd:every=0", "every=0: expected a whole number of at least 1"),
        ("choco:density=0.1", "strategy choco with 'density': expected gamma"),
        ("choco:gamma=1.5", "gamma=1.5: expected"),
        ("gossipgrad:seed=-1", "seed=-1"),
        ("gossip:every=2", "mix"),
        ("gossip:mix=-1", "mix=-1"),
    ],
)
def test_bad_parameters_are_refused(written: str, words: str) -> None:
    with pytest.raises(Misuse) as caught:
        parse(written)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("method", "shape", "workers", "words"),
    [
        (DPSGD(), "one-peer", 4, "mixing=metropolis on one-peer, whose edges have directions"),
        (DPSGD(mixing="uniform"), "star", 4, "try dpsgd:mixing=metropolis"),
        (DPSGD(mixing="uniform"), "edges:0>1,1>2,2>0,0>2", 3, "try --strategy sgp"),
        (parse("choco").method(), "matcha", 4, "choco on matcha: expected a topology that stays the same"),
    ],
)
def test_topologies_that_do_not_fit_are_refused(method: Method, shape: str, workers: int, words: str) -> None:
    with pytest.raises(Misuse) as caught:
        method.check_shape(parse_topology(shape), workers)
    assert words in str(caught.value)


def test_directions_go_with_uniform_weights_only() -> None:
    assert not DPSGD().directed
    assert DPSGD(mixing="uniform").directed
    DPSGD(mixing="uniform").check_shape(parse_topology("one-peer"), 7)

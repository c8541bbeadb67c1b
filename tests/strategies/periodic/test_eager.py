"""Eager updates: each worker is where an outer optimizer of its own would be, and theta stays common."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import Misuse
from taut.strategies import parse
from taut.strategies.periodic.diloco import DiLoCo
from taut.strategies.periodic.eager import EagerView
from taut.strategies.periodic.nesterov import nesterov
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld

SIZE, RATE, DECAY = 6, 0.7, 0.9


def change_of(rank: int, step: int) -> np.ndarray:
    return np.random.default_rng(100 * rank + step).normal(size=SIZE).astype(np.float32)


def moves(actor: Actor) -> int:
    actor.x += change_of(actor.rank, actor.steps)
    return 4


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 12))
@settings(max_examples=30, deadline=None)
def test_a_worker_is_where_the_papers_optimizer_would_be(seed: int, workers: int, rounds: int) -> None:
    """The paper: worker m gives its own optimizer D_m / p + (the mean of the round before - its own part of that)."""
    dice = np.random.default_rng(seed)
    theta, momentum = np.zeros(SIZE), np.zeros(SIZE)
    views = [EagerView(np.zeros(SIZE), np.zeros(SIZE)) for _ in range(workers)]
    theirs, theirs_momentum = np.zeros((workers, SIZE)), np.zeros((workers, SIZE))
    before = np.zeros((workers, SIZE))
    for _ in range(rounds):
        now = dice.normal(size=(workers, SIZE))
        nesterov(theta, momentum, before.mean(axis=0), RATE, DECAY)
        for m, view in enumerate(views):
            gradient = now[m] / workers + before.mean(axis=0) - before[m] / workers
            nesterov(theirs[m], theirs_momentum[m], gradient, RATE, DECAY)
            x = view.start - now[m]
            np.testing.assert_allclose(view.contribution(x, theta), theta - now[m], atol=1e-9)
            view.advance(x, theta, RATE, DECAY, workers)
            np.testing.assert_allclose(x, theirs[m], rtol=1e-5, atol=1e-5)
        before = now


@given(st.integers(1, 4), st.integers(2, 4), st.integers(2, 5))
@settings(max_examples=20, deadline=None)
def test_a_round_is_included_one_round_later(workers: int, every: int, rounds: int) -> None:
    world = MethodWorld(DiLoCo(every=every, eager=True), [np.zeros(SIZE, np.float32)] * workers, step=moves)
    world.run(every * rounds)
    theta, momentum = np.zeros(SIZE), np.zeros(SIZE)
    done = [
        -np.mean([sum(change_of(rank, round * every + step) for step in range(every)) for rank in range(workers)], axis=0)
        for round in range(rounds - 1)
    ]
    theta = theta - done[0]  # the first is a plain average
    for gradient in done[1:]:
        nesterov(theta, momentum, gradient.copy(), RATE, DECAY)
    for actor in world.actors.values():
        np.testing.assert_allclose(actor.method_state.theta, theta, rtol=1e-3, atol=1e-3)


def test_nobody_waits_for_the_round_under_way() -> None:
    """Nothing is delivered: a worker makes H steps, and H more; then it waits."""
    world = MethodWorld(DiLoCo(every=3, eager=True), [np.zeros(SIZE, np.float32)] * 3, step=moves)
    for _ in range(10):
        for rank, actor in world.actors.items():
            if actor.proceed:
                world.take_step(rank)
    assert {actor.steps for actor in world.actors.values()} == {6}


def test_all_end_with_theta_which_has_everybodys_last_steps() -> None:
    world = MethodWorld(
        DiLoCo(every=2, eager=True, outer_rate=1.0, outer_momentum=0.0), [np.zeros(SIZE, np.float32)] * 3, step=moves
    )
    world.run(7)
    world.finish()
    assert world.spread() == 0.0
    expected = sum(np.mean([change_of(rank, step) for rank in range(3)], axis=0) for step in range(7))
    np.testing.assert_allclose(world.vectors()[0], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("given", ["fragments=2", "overlap=2", "delayed=true", "robust=median"])
def test_it_stands_alone(given: str) -> None:
    with pytest.raises(Misuse, match="eager"):
        parse(f"diloco:eager=true,{given}")

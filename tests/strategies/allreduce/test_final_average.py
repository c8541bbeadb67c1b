"""The last average: one model for all, the mean of the finite replicas, whoever dies or comes meanwhile."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.messages import Note
from taut.errors import MalformedMessage
from taut.strategies.allreduce.final_average import FinalAverage
from taut.strategies.api import Draining, Heard
from taut.testing.worlds.method_world import MethodWorld


def vectors(count: int, seed: int, size: int = 5) -> list[np.ndarray]:
    made = np.random.default_rng(seed)
    return [made.normal(size=size).astype(np.float32) for _ in range(count)]


def same_bits(world: MethodWorld) -> bool:
    return len({x.tobytes() for x in world.vectors()}) == 1


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("lossy", [False, True])
def test_everybody_ends_with_the_mean_to_the_bit(workers: int, lossy: bool) -> None:
    given_vectors = vectors(workers, workers)
    world = MethodWorld(FinalAverage(), given_vectors, seed=workers, lossy=lossy)
    world.finish()
    assert same_bits(world)
    np.testing.assert_allclose(world.vectors()[0], np.mean(given_vectors, axis=0), rtol=1e-5, atol=1e-6)


def test_the_distance_is_measured_exactly_and_relative() -> None:
    given_vectors = vectors(3, 1)
    world = MethodWorld(FinalAverage(), given_vectors)
    world.finish()
    mean = np.mean(np.stack(given_vectors).astype(np.float64), axis=0)
    for rank, x in enumerate(given_vectors):
        wanted = np.linalg.norm(x - mean) / np.linalg.norm(mean)
        assert world.actors[rank].method_state.distance == pytest.approx(wanted, rel=1e-4)


def test_a_broken_replica_does_not_break_the_others() -> None:
    broken = np.full(5, np.nan, np.float32)
    sound = vectors(2, 2)
    world = MethodWorld(FinalAverage(), [broken, *sound])
    world.finish()
    assert same_bits(world)
    np.testing.assert_allclose(world.vectors()[0], np.mean(sound, axis=0), rtol=1e-5)
    assert [world.actors[rank].method_state.left_out for rank in range(3)] == [True, False, False]


def test_where_all_are_broken_nothing_is_claimed() -> None:
    world = MethodWorld(FinalAverage(), [np.full(2, np.inf, np.float32), np.full(2, np.nan, np.float32)])
    world.finish()
    assert not any(actor.method_state.agreed for actor in world.actors.values())
    assert np.isinf(world.vectors()[0]).all()


def test_a_mean_of_another_length_is_refused() -> None:
    world = MethodWorld(FinalAverage(), vectors(2, 3))
    world.tell(0, Draining())
    world.tell(0, Heard(1, Note("settled", 0, 1 << 30)))
    with pytest.raises(MalformedMessage, match="3 bytes"):
        world.tell(0, Heard(1, Note("mean", 1, 1 << 30), b"abc"))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.booleans())
def test_deaths_and_latecomers_at_any_moment(seed: int, workers: int, lossy: bool) -> None:
    """Everybody who is left comes to an end with the same bits, inside the span of the replicas that were there."""
    chance = random.Random(seed)
    given_vectors = vectors(workers, seed % 1000)
    world = MethodWorld(FinalAverage(), given_vectors, seed=seed, lossy=lossy)
    draining: set[int] = set()
    changes = 4
    for _ in range(5000):
        waiting = [rank for rank in world.actors if rank not in draining]
        if not waiting and all(actor.finished for actor in world.actors.values()) and chance.random() < 0.3:
            break
        move = chance.random()
        if waiting and move < 0.2:
            rank = chance.choice(waiting)
            draining.add(rank)
            world.actors[rank].ended = True
            world.catch_up(rank)
            world.tell(rank, Draining())
        elif changes and move < 0.24 and len(world.actors) > 1:
            changes -= 1
            world.kill(chance.choice(sorted(world.actors)))
        elif changes and move < 0.28:
            changes -= 1
            newcomer = world.actors[world.join()]
            newcomer.x += np.float32(chance.random())  # it trained, too
            given_vectors.append(newcomer.x.copy())
        elif not world.deliver() and lossy:
            world.tick()
    assert all(actor.finished for actor in world.actors.values()), f"somebody waits for ever (seed {seed})"
    assert same_bits(world)
    low, high = np.min(given_vectors, axis=0), np.max(given_vectors, axis=0)
    assert (world.vectors()[0] >= low - 1e-4).all()
    assert (world.vectors()[0] <= high + 1e-4).all()

"""SparseLoCo: what is not sent waits and fades, and theta moves along what all have sent."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import Misuse
from taut.strategies import parse
from taut.strategies.compatibility import combine
from taut.strategies.periodic.averaging import Averaging
from taut.strategies.periodic.sparseloco import SparseLoCo
from taut.testing.worlds.codec_actor import with_coder
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld

WORKERS, SIZE, SAMPLES = 3, 20, 4


def change_of(rank: int, step: int) -> np.ndarray:
    return np.random.default_rng(100 * rank + step).normal(size=SIZE).astype(np.float32)


def moves(actor: Actor) -> int:
    actor.x += change_of(actor.rank, actor.steps)
    return SAMPLES


def world_of(method: SparseLoCo | Averaging, codec: str) -> MethodWorld:
    starts = [np.zeros(SIZE, np.float32) for _ in range(WORKERS)]
    return MethodWorld(method, starts, step=moves, actor=Actor if codec == "dense" else with_coder(codec, WORKERS))


def largest(e: np.ndarray, k: int) -> np.ndarray:
    q = np.zeros_like(e)
    chosen = np.argsort(-np.abs(e), kind="stable")[:k]
    q[chosen] = e[chosen]
    return q


@given(st.integers(1, 4), st.sampled_from([0.25, 0.5, 0.95, 1.0]), st.sampled_from([0.5, 1.0]), st.integers(1, 6))
@settings(max_examples=20, deadline=None)
def test_it_is_its_equation(every: int, decay: float, rate: float, rounds: int) -> None:
    world = world_of(SparseLoCo(every=every, decay=decay, outer_rate=rate), "topk:density=0.2")
    world.run(every * rounds)
    theta, e = np.zeros(SIZE), [np.zeros(SIZE) for _ in range(WORKERS)]
    for round in range(rounds):
        sent = np.zeros(SIZE)
        for rank in range(WORKERS):
            x = theta + sum(change_of(rank, step) for step in range(every * round, every * (round + 1)))
            e[rank] = decay * e[rank] + SAMPLES * every * (x - theta)
            q = largest(e[rank], 4)
            sent, e[rank] = sent + q, e[rank] - q
        mean = sent / (WORKERS * SAMPLES * every)
        theta = theta + (rate if round else 1.0) * mean  # a run's first round is a plain average
    for x in world.vectors():
        np.testing.assert_allclose(x, theta, rtol=1e-3, atol=1e-3)


@given(st.integers(1, 4), st.sampled_from(["dense", "topk:density=0.2", "sign", "chunked:density=0.3"]))
@settings(max_examples=20, deadline=None)
def test_without_fading_it_is_averaging(every: int, codec: str) -> None:
    ends = []
    for method in (SparseLoCo(every=every, decay=1.0), Averaging(every=every)):
        world = world_of(method, codec)
        world.run(4 * every)
        ends.append([x.tobytes() for x in world.vectors()])
    assert ends[0] == ends[1]


def test_who_has_not_trained_forgets_nothing() -> None:
    """Its accumulator waits for its next change, as long as that takes."""
    world = world_of(SparseLoCo(every=2, decay=0.5), "topk:density=0.2")
    world.run(4)
    idle = world.actors[1]
    before = idle.coder.left.copy()  # type: ignore[attr-defined]
    assert np.abs(before).sum() > 0
    idle.ended = True
    world.run(4)
    assert np.array_equal(idle.coder.left, before)  # type: ignore[attr-defined]
    assert not np.array_equal(world.actors[0].coder.left, before)  # type: ignore[attr-defined]


def test_its_codec_is_chunked_unless_another_is_chosen() -> None:
    assert combine("sparseloco").codec == "chunked"
    assert combine("sparseloco", codec="sign").codec == "sign"
    assert combine("sparseloco").finish == "any"


@pytest.mark.parametrize("given", ["every=0", "decay=0", "decay=1.5", "outer_rate=0"])
def test_settings_that_cannot_be_are_refused(given: str) -> None:
    with pytest.raises(Misuse, match=given):
        parse(f"sparseloco:{given}")

"""Robust merging: a few wrong vectors, whatever they hold, move the result no further than the honest ones allow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from taut.core.messages import Note
from taut.errors import Misuse
from taut.strategies.allreduce.robust_mean import CHUNK, clip, median, trimmed, trimmed_count
from taut.strategies.api import Heard
from taut.strategies.gossip.dpsgd import DPSGD
from taut.strategies.gossip.gossip import Gossip
from taut.strategies.periodic.averaging import Averaging
from taut.strategies.registry import parse
from taut.testing.checks.method_check import check_method
from taut.testing.worlds.method_actor import Actor
from taut.testing.worlds.method_world import MethodWorld

FINITE = st.floats(-(2.0**100), 2.0**100, width=32)
WILD = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def crowds(draw, wrong):
    """Honest vectors, fewer wrong ones by the rule ``wrong(number of all)``, and their order."""
    count = draw(st.integers(1, 9))
    bad = draw(st.integers(0, wrong(count)))
    size = draw(st.integers(1, 4))
    honest = [draw(arrays(np.float32, size, elements=FINITE)) for _ in range(count - bad)]
    liars = [draw(arrays(np.float32, size, elements=WILD)) for _ in range(bad)]
    return honest, draw(st.permutations(honest + liars))


def within(result, honest) -> bool:
    return bool((np.min(honest, axis=0) <= result).all() and (result <= np.max(honest, axis=0)).all())


@given(crowds(wrong=lambda count: (count - 1) // 2))
def test_the_median_lies_between_honest_ones_while_they_are_more_than_half(crowd) -> None:
    honest, everybody = crowd
    result = np.empty_like(honest[0])
    median(everybody, result)
    assert within(result, honest)


@given(crowds(wrong=trimmed_count))
def test_the_trimmed_mean_lies_between_honest_ones_while_no_more_are_wrong_than_it_trims(crowd) -> None:
    honest, everybody = crowd
    result = np.empty_like(honest[0])
    trimmed(everybody, result)
    assert within(result, honest)


@given(arrays(np.float32, 3, elements=FINITE), st.integers(1, 7))
def test_of_equal_vectors_it_is_that_vector(vector, count) -> None:
    for merge in (median, trimmed):
        result = np.empty_like(vector)
        merge([vector] * count, result)
        assert result.tobytes() == (vector + np.float32(0)).tobytes() or np.array_equal(result, vector)


@given(crowds(wrong=lambda count: (count - 1) // 2), arrays(np.float32, 4, elements=st.floats(-100, 100, width=32)))
def test_clipping_moves_no_further_than_the_honest_would(crowd, own) -> None:
    honest, everybody = crowd
    x = own[: len(honest[0])].copy()
    before = x.astype(np.float64)
    furthest = max(np.linalg.norm(one.astype(np.float64) - before) for one in honest)
    clip(x, dict(enumerate(everybody)), dict.fromkeys(range(len(everybody)), 1.0 / (1 + len(everybody))))
    assert np.linalg.norm(x - before) <= furthest * (1 + 1e-5) + 1e-3


def test_long_vectors_are_merged_in_pieces() -> None:
    rows = np.random.default_rng(0).normal(size=(5, CHUNK + 7)).astype(np.float32)
    result = rows[0].copy()
    median([result, *rows[1:]], result)
    assert np.array_equal(result, np.median(rows, axis=0).astype(np.float32))


@pytest.mark.parametrize(("kind", "moved"), [("none", True), ("median", False), ("trimmed", False), ("clip", False)])
def test_a_hostile_neighbour_moves_everybody_unless_merging_is_robust(kind: str, moved: bool) -> None:
    """Worker 4 of five says that its weights are huge, round after round."""

    def step(actor: Actor) -> int:
        actor.x[:] = 1e6 if actor.rank == 4 else actor.x * np.float32(0.9)
        return 1

    world = MethodWorld(DPSGD(robust=kind), [np.ones(3, np.float32)] * 5, topology="complete", step=step)
    world.run(20)
    assert bool(max(np.abs(world.actors[rank].x).max() for rank in range(4)) > 2.0) is moved


@pytest.mark.parametrize("written", ["dpsgd:robust=median", "dpsgd:robust=trimmed,every=3", "dpsgd:robust=clip"])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_everybody_comes_to_an_end(written: str, seed: int) -> None:
    check_method(parse(written).method(), seed, topology="complete" if seed else "ring")


def test_rounds_every_so_many_steps_are_a_robust_average() -> None:
    def step(actor: Actor) -> int:
        actor.x[:] = -5e8 if actor.rank == 1 else float(actor.rank)
        return 1

    world = MethodWorld(DPSGD(robust="median", every=4), [np.zeros(1, np.float32)] * 5, topology="complete", step=step)
    world.run(4)
    assert [float(world.actors[rank].x[0]) for rank in (0, 2, 3, 4)] == [2.0] * 4
    assert world.actors[0].method_state.rounds == 1


def test_gossip_clips_what_a_neighbour_draws_to() -> None:
    def drawn(robust: str) -> float:
        world = MethodWorld(Gossip(robust=robust), [np.ones(2, np.float32)] * 4, topology="complete")
        for sender, value in ((3, 1e9), (1, 1.5), (2, 0.5), (3, 1e9)):
            world.tell(0, Heard(sender, Note("weights"), np.full(2, value, np.float32).tobytes()))
        return float(np.abs(world.actors[0].x).max())

    assert drawn("none") > 1e8
    assert drawn("clip") < 2.0


def test_a_number_that_is_not_finite_is_refused_and_the_round_goes_on() -> None:
    def step(actor: Actor) -> int:
        if actor.rank == 2:
            actor.x[:] = np.nan
        return 1

    world = MethodWorld(DPSGD(), [np.ones(3, np.float32)] * 4, topology="complete", step=step)
    world.run(5)
    assert all(np.isfinite(world.actors[rank].x).all() for rank in (0, 1, 3))
    assert {sender for sender, _ in world.refused} == {2}
    assert len(world.refused) == 15


def test_an_average_that_is_not_finite_is_taken_by_nobody() -> None:
    def step(actor: Actor) -> int:
        actor.x[:] = np.inf if actor.rank == 1 else actor.rank
        return 1

    world = MethodWorld(Averaging(every=2), [np.zeros(2, np.float32)] * 3, step=step)
    world.run(4)
    assert [world.actors[rank].x.tolist() for rank in (0, 2)] == [[0.0, 0.0], [2.0, 2.0]]
    assert world.method.figures(world.actors[0].method_state) == {"rounds": 2.0, "spoilt": 2.0}


@pytest.mark.parametrize(
    "written",
    [
        "dpsgd:robust=medain",
        "gossip:robust=median",
        "dpsgd:robust=clip,tracking=true",
        "dpsgd:every=0",
        "dpsgd:every=2,momentum=quasi-global",
    ],
)
def test_what_cannot_be_is_refused(written: str) -> None:
    with pytest.raises(Misuse):
        parse(written)

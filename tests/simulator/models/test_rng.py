"""Draws are what they were: a change of any value here would change every trace ever written."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.simulator.models.portable_math import exp, exponential_quantile, log, normal_quantile
from taut.simulator.models.rng import Rng

NAMES = st.lists(st.one_of(st.text(max_size=8), st.integers(-(2**40), 2**40)), max_size=3)


def test_the_stream_is_splitmix64_of_a_blake2b_key() -> None:
    dice = Rng(0)
    dice._state = dice.key = 1234567  # with this key, these are the published values of SplitMix64
    assert [dice.bits() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_golden_values() -> None:
    dice = Rng(0)
    assert [dice.bits() for _ in range(3)] == [9974636777642754316, 5553124637151643192, 16140080357931135019]
    dice = Rng(7, "speed", 3)
    drawn = [dice.random(), dice.random(), dice.random(), dice.normal(), dice.exponential()]
    golden = [0.40194857317292454, 0.6990972839885838, 0.731969167584694, -0.9231338632877184, 0.6248197980599753]
    assert drawn == golden
    assert dice.randrange(1000) == 554


def test_streams_of_different_names_differ() -> None:
    keys = [Rng(0).key, Rng(1).key, Rng(0, 1, 2).key, Rng(0, "1", 2).key, Rng(0, 12).key, Rng(0, "a", "b").key]
    assert len({*keys, Rng(0, "a, b").key, Rng(0, "ab").key}) == 8


@given(seed=st.integers(0, 2**62), names=NAMES, position=st.integers(0, 50))
def test_a_position_needs_no_draws_before_it(seed: int, names: list[str | int], position: int) -> None:
    dice = Rng(seed, *names)
    drawn = [dice.random() for _ in range(position + 1)]
    assert Rng(seed, *names).at(position) == drawn[-1]
    assert all(0.0 <= each < 1.0 for each in drawn)


@given(seed=st.integers(0, 2**62), n=st.integers(1, 2**40))
def test_randrange_stays_in_its_range(seed: int, n: int) -> None:
    dice = Rng(seed)
    assert all(0 <= dice.randrange(n) < n for _ in range(20))


def test_randrange_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="randrange"):
        Rng(0).randrange(0)


def test_moments() -> None:
    dice, n = Rng(1, "moments"), 20_000
    normal = [dice.normal() for _ in range(n)]
    exponential = [dice.exponential() for _ in range(n)]
    counts = [0] * 8
    for _ in range(n):
        counts[dice.randrange(8)] += 1
    assert abs(sum(normal) / n) < 0.03
    assert abs(sum(z * z for z in normal) / n - 1.0) < 0.05
    assert abs(sum(z**4 for z in normal) / n - 3.0) < 0.3
    assert abs(sum(exponential) / n - 1.0) < 0.03
    assert abs(sum(x * x for x in exponential) / n - 2.0) < 0.15
    assert all(abs(count / n - 0.125) < 0.01 for count in counts)


@given(st.floats(-700.0, 700.0))
def test_exp_is_exp(x: float) -> None:
    assert exp(x) == pytest.approx(math.exp(x), rel=1e-15, abs=1e-320)


@given(st.floats(1e-300, 1e300))
def test_log_is_log(x: float) -> None:
    assert log(x) == pytest.approx(math.log(x), rel=1e-15, abs=1e-16)


@given(st.floats(2.0**-54, 1.0 - 2.0**-53))
def test_normal_quantile_is_the_quantile(u: float) -> None:
    assert normal_quantile(u) == pytest.approx(NormalDist().inv_cdf(u), rel=1e-13, abs=1e-14)


def test_the_ends_of_the_range() -> None:
    assert exp(-1e6) == 0.0
    assert math.isfinite(exponential_quantile(1.0 - 2.0**-53))
    with pytest.raises(OverflowError):
        exp(1e6)
    with pytest.raises(ValueError, match="log"):
        log(0.0)

"""Durations of steps: their mean, their spread, and that they are what they were."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.errors import Misuse
from taut.simulator.models.rng import Rng
from taut.simulator.models.speeds import Pace, Speeds, parse_draw

DRAWS = ("constant", "lognormal:0.3", "uniform:0.2", "exponential")
GOLDEN = {
    "constant": [9568838, 9568838, 38459832, 38459832],
    "lognormal:0.3": [8170410, 8951615, 43523992, 35535363],
    "uniform:0.2": [9007031, 9458596, 41737429, 37764009],
    "exponential": [4169609, 6096697, 48015504, 23327681],
}


@pytest.mark.parametrize("draw", DRAWS)
def test_golden_values(draw: str) -> None:
    pace = Pace(Speeds(0.01, draw, spread=0.1, stragglers={1: 4.0}), Rng(5))
    assert [pace.step_ns(rank, step) for rank in (0, 1) for step in (0, 1)] == GOLDEN[draw]


@pytest.mark.parametrize("draw", DRAWS)
def test_the_mean_is_the_steps_own(draw: str) -> None:
    pace = Pace(Speeds(0.01, draw, stragglers={2: 3.0}), Rng(1))
    for rank, mean_s in ((0, 0.01), (2, 0.03)):
        mean_ns = sum(pace.step_ns(rank, step) for step in range(10_000)) / 10_000
        assert mean_ns == pytest.approx(mean_s * 1e9, rel=0.04)


def test_uniform_stays_within_its_share() -> None:
    pace = Pace(Speeds(0.01, "uniform:0.2"), Rng(1))
    drawn = [pace.step_ns(0, step) for step in range(2000)]
    assert 0.008e9 <= min(drawn) < 0.0085e9
    assert 0.0115e9 < max(drawn) <= 0.012e9


def test_lognormal_has_its_sigma() -> None:
    pace = Pace(Speeds(0.01, "lognormal:0.3"), Rng(1))
    logs = [math.log(pace.step_ns(0, step)) for step in range(5000)]
    mean = sum(logs) / len(logs)
    assert math.sqrt(sum((each - mean) ** 2 for each in logs) / len(logs)) == pytest.approx(0.3, rel=0.05)


def test_spread_is_a_workers_own_for_the_whole_run() -> None:
    pace = Pace(Speeds(0.01, spread=0.2), Rng(3))
    assert pace.step_ns(0, 0) == pace.step_ns(0, 99)
    logs = [math.log(pace.factor(rank)) for rank in range(2000)]
    assert abs(sum(logs) / len(logs)) < 0.02
    assert math.sqrt(sum(each * each for each in logs) / len(logs)) == pytest.approx(0.2, rel=0.06)


@given(
    draw=st.sampled_from(DRAWS),
    asked=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), max_size=20),
    seed=st.integers(0, 2**32),
)
def test_the_order_of_asking_does_not_matter(draw: str, asked: list[tuple[int, int]], seed: int) -> None:
    speeds = Speeds(0.01, draw, spread=0.3)
    forth, back = Pace(speeds, Rng(seed)), Pace(speeds, Rng(seed))
    there = {each: forth.step_ns(*each) for each in asked}
    assert there == {each: back.step_ns(*each) for each in reversed(asked)}
    assert all(duration >= 1 for duration in there.values())


@pytest.mark.parametrize(
    ("draw", "says"),
    [
        ("lognorm:0.3", "did you mean 'lognormal'"),
        ("lognormal", "lognormal:0.3"),
        ("lognormal:-1", "from 0 to 5"),
        ("lognormal:nan", "from 0 to 5"),
        ("uniform:1.5", "from 0 to 1"),
        ("uniform:much", "uniform:0.2"),
        ("constant:2", "alone"),
        ("", "constant, lognormal:SIGMA"),
    ],
)
def test_what_is_no_draw_is_refused(draw: str, says: str) -> None:
    with pytest.raises(Misuse, match=says):
        parse_draw(draw)


@pytest.mark.parametrize(
    "given_fields",
    [{"step_s": 0.0}, {"step_s": math.nan}, {"spread": -0.1}, {"stragglers": {0: 0.0}}, {"stragglers": {-1: 2.0}}],
)
def test_speeds_that_cannot_be_are_refused(given_fields: dict[str, object]) -> None:
    with pytest.raises(Misuse):
        Speeds(**given_fields)  # type: ignore[arg-type]

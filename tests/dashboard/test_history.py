"""Curves of any length stay small, and lose no samples."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.messages import Statistics
from taut.dashboard.history import MOST_CURVES, MOST_POINTS, History, ProgressMark


def grown(marks: list[ProgressMark], every_s: float = 1.0) -> History:
    history = History(every_s)
    for mark in marks:
        history = history.grown(mark)
    return history


def alone(samples: int) -> Statistics:
    return Statistics(samples=samples, wall_s=samples / 10)


def both(samples: int, time_s: float) -> dict[int, Statistics]:
    """Two workers that share the samples: the first waits a quarter of its time."""
    half = samples // 2
    return {
        0: Statistics(samples=half, wall_s=time_s, compute_s=0.75 * time_s, wait_s=0.25 * time_s),
        1: Statistics(samples=samples - half, wall_s=time_s, compute_s=time_s),
    }


def test_only_the_first_workers_have_curves_of_their_own() -> None:
    there = {rank: alone(10) for rank in range(MOST_CURVES + 20)}
    history = grown([ProgressMark(0.0, 0, None, there), ProgressMark(1.0, 10, None, there)])
    (point,) = history.points
    assert (point.workers, [one.rank for one in point.ranks]) == (MOST_CURVES + 20, list(range(MOST_CURVES)))


@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(0.001, 5.0), st.integers(0, 1000)), min_size=2, max_size=100))
def test_points_are_in_order_and_apart_and_account_for_every_sample(moves: list[tuple[float, int]]) -> None:
    time_s, samples, marks = 0.0, 0, []
    for pause_s, more in moves:
        time_s, samples = time_s + pause_s, samples + more
        marks.append(ProgressMark(time_s, samples, 0.5, both(samples, time_s)))
    history = grown(marks)
    times = [marks[0].time_s, *(point.time_s for point in history.points)]
    spans = [later - earlier for earlier, later in pairwise(times)]
    assert all(span >= history.every_s for span in spans)
    counted = sum(span * point.samples_per_s for span, point in zip(spans, history.points, strict=True))
    assert history.last is not None
    assert counted == pytest.approx(history.last.samples - marks[0].samples)
    for rank in (0, 1):
        lines = [{one.rank: one for one in point.ranks}[rank] for point in history.points]
        own = sum(span * line.samples_per_s for span, line in zip(spans, lines, strict=True))
        assert own == pytest.approx(history.last.there[rank].samples - marks[0].there[rank].samples)
    assert all(sum(point.parts) == pytest.approx(1.0, abs=0.01) for point in history.points)
    for point in history.points:
        if point.ideal_per_s is not None:  # a worker that waits could do more
            assert point.ideal_per_s >= point.samples_per_s * 0.99


def test_a_long_run_takes_no_more_points() -> None:
    marks = [ProgressMark(float(second), 10 * second, None, {0: alone(10 * second)}) for second in range(5000)]
    history = grown(marks)
    assert MOST_POINTS / 2 <= len(history.points) <= MOST_POINTS
    assert (history.every_s, history.halvings) == (16.0, 4)
    assert {point.samples_per_s for point in history.points} == {10.0}
    assert {point.ranks[0].samples_per_s for point in history.points} == {10.0}
    assert history.points[0].time_s <= 16.0 and history.points[-1].time_s > 4980.0, "the whole run is there"


def test_fewer_samples_than_before_are_no_negative_rate() -> None:
    counts = ((0.0, 100), (2.0, 40), (4.0, 60))
    history = grown([ProgressMark(time_s, samples, None, {0: alone(samples)}) for time_s, samples in counts])
    assert [point.samples_per_s for point in history.points] == [0.0, 10.0]

"""Curves of any length stay small, and lose no samples."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.dashboard.history import MOST_POINTS, History, ProgressMark


def grown(marks: list[ProgressMark], every_s: float = 1.0) -> History:
    history = History(every_s)
    for mark in marks:
        history = history.grown(mark)
    return history


@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(0.001, 5.0), st.integers(0, 1000)), min_size=2, max_size=100))
def test_points_are_in_order_and_apart_and_account_for_every_sample(moves: list[tuple[float, int]]) -> None:
    time_s, samples, marks = 0.0, 0, []
    for pause_s, more in moves:
        time_s, samples = time_s + pause_s, samples + more
        marks.append(ProgressMark(time_s, samples, 0.5, 2))
    history = grown(marks)
    times = [marks[0].time_s, *(point.time_s for point in history.points)]
    spans = [later - earlier for earlier, later in pairwise(times)]
    assert all(span >= history.every_s for span in spans)
    counted = sum(span * point.samples_per_s for span, point in zip(spans, history.points, strict=True))
    assert history.last is not None
    assert counted == pytest.approx(history.last.samples - marks[0].samples)


def test_a_long_run_takes_no_more_points() -> None:
    history = grown([ProgressMark(float(second), 10 * second, None, 1) for second in range(5000)])
    assert MOST_POINTS / 2 <= len(history.points) <= MOST_POINTS
    assert (history.every_s, history.halvings) == (16.0, 4)
    assert {point.samples_per_s for point in history.points} == {10.0}
    assert history.points[0].time_s <= 16.0 and history.points[-1].time_s > 4980.0, "the whole run is there"


def test_fewer_samples_than_before_are_no_negative_rate() -> None:
    history = grown([ProgressMark(0.0, 100, None, 1), ProgressMark(2.0, 40, None, 1), ProgressMark(4.0, 60, None, 1)])
    assert [point.samples_per_s for point in history.points] == [0.0, 10.0]

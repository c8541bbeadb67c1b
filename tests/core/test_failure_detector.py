"""The detector follows the worker's own rhythm: it forgives a loaded machine, and finds the dead."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.failure_detector import HEARTBEAT_S, Detector, DetectorSettings, phi


def beating(intervals: list[float]) -> tuple[Detector, float]:
    """A detector after these intervals, and the time of the last beat. No beat may come too late for it."""
    now = 0.0
    detector = Detector(now)
    for interval in intervals:
        now += interval
        assert not detector.suspects(now), f"given up after {interval:.2f} s, at {now:.2f} s"
        detector.beat(now)
    return detector, now


def given_up_after_s(detector: Detector, last: float) -> float:
    silence = 0.0
    while not detector.suspects(last + silence):
        silence += 0.05
    return silence


def test_silence_of_a_punctual_worker_is_noticed_after_several_intervals() -> None:
    detector, last = beating([0.5] * 200)
    assert 4 * 0.5 < given_up_after_s(detector, last) < 12 * 0.5


def test_the_limit_scales_with_the_rhythm() -> None:
    limits = [given_up_after_s(*beating([interval] * 200)) for interval in (0.1, 0.5, 2.5)]
    assert limits[0] < limits[1] / 3 < limits[2] / 9


def test_intervals_that_grow_slowly_are_forgiven() -> None:
    beating([0.5 * 1.05**step for step in range(80)])  # from half a second to 24 s


@given(st.lists(st.floats(0.2, 2.0), min_size=1, max_size=150))
def test_jitter_around_the_usual_interval_is_forgiven(intervals: list[float]) -> None:
    beating(intervals)


def test_one_long_pause_is_forgiven_and_learnt_from() -> None:
    before, last = beating([0.5] * 100)
    after, now = beating([0.5] * 100 + [3.0])
    assert given_up_after_s(after, now) > given_up_after_s(before, last)


def test_before_the_first_heartbeat_a_worker_has_time_but_not_for_ever() -> None:
    assert not Detector(0.0).suspects(10.0)
    assert Detector(0.0).suspects(60.0)


def test_beats_that_arrive_in_a_burst_do_not_make_it_nervous() -> None:
    steady, last = beating([0.5] * 100)
    burst, now = beating([0.5] * 100 + [2.0] + [0.0] * 30)
    assert burst.rhythm()[0] > 0.7 * steady.rhythm()[0]
    assert given_up_after_s(burst, now) > 0.7 * given_up_after_s(steady, last)


def test_other_messages_show_life_but_teach_no_rhythm() -> None:
    detector, last = beating([0.5] * 60)
    rhythm = detector.rhythm()
    detector.seen(last + 4.0)
    assert not detector.suspects(last + 6.0)
    assert detector.rhythm() == rhythm


def test_time_in_which_the_judge_was_away_is_no_silence() -> None:
    detector, last = beating([0.5] * 60)
    assert detector.suspects(last + 60.2)
    detector.pause(60.0, last + 60.2)
    assert not detector.suspects(last + 60.2)
    rhythm = detector.rhythm()
    detector.beat(last + 60.5)
    assert detector.rhythm()[0] == pytest.approx(rhythm[0], rel=0.05), "the pause must not be learnt"
    assert detector.suspects(last + 60.5 + 12.0), "and a death afterwards is still found"


@given(
    st.floats(0.01, 100.0),
    st.floats(0.01, 100.0),
    st.floats(0.0, 1e4),
    st.floats(0.0, 1e4),
)
def test_phi_grows_with_silence_and_stays_finite(mean: float, deviation: float, one: float, two: float) -> None:
    low, high = sorted((one, two))
    assert 0.0 <= phi(low, mean, deviation) <= phi(high, mean, deviation) + 1e-9
    assert math.isfinite(phi(high, mean, deviation))


def abandoned_after_s(detector: Detector, closed: float) -> float:
    waited = 0.0
    while not detector.abandoned(closed + waited):
        waited += 0.05
    return waited


def test_who_lost_its_connection_has_three_heartbeats_to_speak_by_a_new_one() -> None:
    for intervals in ([0.5] * 40, [0.5] * 200, [4.0] + [0.5] * 40, [0.5] * 100 + [3.0]):
        detector, last = beating(intervals)
        assert not detector.abandoned(last + 1e6), "silence alone is for phi to judge"
        detector.closed(last + 0.1)
        assert 3 * HEARTBEAT_S <= abandoned_after_s(detector, last + 0.1) < 3.75 * HEARTBEAT_S, "a stall changes little"


def test_three_of_its_own_heartbeats_where_those_are_slow_or_not_known_yet() -> None:
    for intervals, usual_s in (([2.0] * 100, 2.0), ([], DetectorSettings().prior_s)):
        detector, last = beating(intervals)
        detector.closed(last)
        assert abandoned_after_s(detector, last) == pytest.approx(3 * usual_s, abs=0.06)


@given(st.lists(st.floats(0.2, 2.5), max_size=100), st.floats(0.0, 0.5), st.floats(0.0, 3 * HEARTBEAT_S - 1e-6))
def test_who_speaks_by_a_new_connection_in_time_is_never_abandoned(
    intervals: list[float], until_closed_s: float, back_s: float
) -> None:
    detector, last = beating(intervals)
    detector.closed(last + until_closed_s)
    back = last + until_closed_s + back_s
    assert not detector.abandoned(back)
    detector.seen(back)
    assert not detector.is_closed and not detector.abandoned(back + 1e6)


def test_time_in_which_the_judge_was_away_is_no_absence_of_a_connection() -> None:
    detector, last = beating([0.5] * 100)
    detector.closed(last)
    detector.pause(60.0, last + 60.2)
    assert not detector.abandoned(last + 60.2)
    assert detector.abandoned(last + 60.2 + 3 * HEARTBEAT_S)

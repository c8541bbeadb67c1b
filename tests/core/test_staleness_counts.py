"""The distribution of staleness: every update is counted once, in the bucket of its lateness, and differences add up."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from taut.core.messages import Statistics
from taut.core.staleness_counts import BOUNDS, BUCKETS, StalenessCounts, since, staleness_text, summed, within
from taut.dashboard.staleness_window import EVERY_S, WINDOW_S, StalenessWindow
from taut.supervisor.metrics import total

LATE = st.lists(st.floats(0.0, 1e9), max_size=60)


def counted(late: list[float]) -> tuple[int, ...]:
    counts = StalenessCounts()
    for steps in late:
        counts.add(steps)
    return counts.taken()


@given(LATE, LATE)
def test_each_update_is_counted_once_and_differences_add_up(early: list[float], later: list[float]) -> None:
    before, after = counted(early), counted(early + later)
    assert sum(before) == len(early) and len(before) <= BUCKETS
    assert summed([before, since(before, after)]) == after
    assert since((), after) == after
    assert sum(total([Statistics(late=before), Statistics(late=after)]).late) == 2 * len(early) + len(later)
    for at, bound in enumerate(BOUNDS):
        assert sum(after[: at + 1]) == sum(one <= bound for one in early + later)


@given(LATE.filter(bool), st.floats(0.01, 1.0))
def test_a_share_of_the_updates_keeps_the_bound_and_not_the_one_before(late: list[float], share: float) -> None:
    bound = within(counted(late), share)
    assert bound is not None
    assert sum(one <= bound for one in late) >= share * len(late) - 1e-9
    below = max((one for one in BOUNDS if one < bound), default=-1)
    assert sum(one <= below for one in late) < share * len(late)
    assert ("more than" in staleness_text(counted(late))) == math.isinf(within(counted(late), 0.5) or 0.0)


@given(st.lists(st.tuples(st.floats(0.1, 30.0), LATE), min_size=1, max_size=40))
def test_the_window_has_at_least_the_last_minute_and_stays_small(looks: list[tuple[float, list[float]]]) -> None:
    window, now_s, all_of, times = StalenessWindow(), 0.0, [], []
    for pause_s, late in looks:
        now_s += pause_s
        all_of += late
        times += [now_s] * len(late)
        window = window.grown(now_s, {0: counted(all_of)} if all_of else {})
        assert len(window.marks) <= WINDOW_S / EVERY_S + 2
    lines = window.view().lines
    assert bool(lines) == bool(all_of)
    if lines:
        assert lines[0].whole == counted(all_of)
        recent = sum(time_s > now_s - WINDOW_S for time_s in times)
        first = sum(time_s == looks[0][0] for time_s in times)  # nothing is known before the first look
        assert recent - first <= sum(lines[0].minute) <= len(all_of)

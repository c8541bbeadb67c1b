"""Intervals lose nothing: rates times durations are the totals, and each split sums to the whole."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.analysis.intervals import intervals
from taut.core.messages import Statistics
from taut.supervisor.storage.store_reader import StatisticRecord

STEPS = st.lists(
    st.tuples(st.floats(0.01, 3.0), st.integers(0, 500), st.floats(0.0, 1.0), st.integers(0, 2)), max_size=40
)


@given(STEPS, st.floats(0.0, 2.0))
def test_rates_times_durations_are_the_totals(steps: list[tuple[float, int, float, int]], least_s: float) -> None:
    records: list[StatisticRecord] = []
    now = {rank: Statistics() for rank in range(3)}
    time_s = 0.0
    for seconds, samples, busy, rank in steps:
        time_s += seconds
        old = now[rank]
        worked_s = (time_s - old.wall_s) * busy
        now[rank] = Statistics(
            samples=old.samples + samples,
            wall_s=time_s,
            compute_s=old.compute_s + worked_s,
            wait_s=old.wait_s + time_s - old.wall_s - worked_s,
        )
        records.append(StatisticRecord(100.0 + time_s, rank, now[rank]))
    found = intervals(records, 100.0, least_s)
    for rank, each in found.items():
        mine = [one for one in records if one.rank == rank]
        samples = {one.time - 100.0: one.statistics.samples for one in mine}
        total = sum(one.samples_per_s * (one.end_s - one.begin_s) for one in each)
        assert total == pytest.approx(samples[each[-1].end_s] - mine[0].statistics.samples, rel=1e-6, abs=1e-3)
        assert all(one.end_s - one.begin_s >= least_s - 1e-9 for one in each)
        assert all(sum(one.split) == pytest.approx(1.0, abs=1e-6) for one in each)
        assert all(before.end_s == after.begin_s for before, after in itertools.pairwise(each))


def test_a_resumed_worker_begins_anew() -> None:
    totals = [(0.0, 0), (1.0, 100), (0.0, 0), (2.0, 300)]
    records = [StatisticRecord(index, 0, Statistics(samples=n, wall_s=s)) for index, (s, n) in enumerate(totals)]
    assert [one.samples_per_s for one in intervals(records, 0.0)[0]] == [100.0, 150.0]

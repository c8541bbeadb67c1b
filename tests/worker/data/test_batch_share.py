"""Laws of the share of the global batch: shares add up, follow speeds, and change slowly."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.strategies.allreduce.round_speeds import RoundSpeeds
from taut.worker.data.batch_share import STEP, BatchShare

SPEEDS = st.lists(st.floats(1.0, 1000.0), min_size=1, max_size=8)


class Workers:
    """Workers in lock-step whose batches of n samples take ``overhead`` + n / speed seconds."""

    def __init__(self, speeds: list[float], global_batch: int, overhead_s: float = 0.0) -> None:
        self.speeds, self.overhead_s, self.global_batch = speeds, overhead_s, global_batch
        self.shares = [BatchShare(global_batch, len(speeds)) for _ in speeds]

    def round(self, stalls: dict[int, float] | None = None) -> float:
        """Make a round; return how long it takes, without any wait that is not another's computing."""
        taken = [
            self.overhead_s + share.size / speed + (stalls or {}).get(at, 0.0)
            for at, (share, speed) in enumerate(zip(self.shares, self.speeds, strict=True))
        ]
        given = [share.speed for share in self.shares]
        speeds = RoundSpeeds(sum(given), sum(each > 0 for each in given), len(given))
        for share, seconds, mine in zip(self.shares, taken, given, strict=True):
            share.measured(share.size, seconds)
            share.follow(replace(speeds, own=mine))
        return max(taken)

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.round()

    @property
    def sizes(self) -> list[int]:
        return [share.size for share in self.shares]


@given(SPEEDS, st.integers(1, 60), st.floats(0.0, 0.1))
def test_shares_add_up_to_the_global_batch_in_every_round(speeds: list[float], per_worker: int, overhead: float) -> None:
    workers = Workers(speeds, 1000 * len(speeds) * per_worker, overhead)
    for _ in range(30):
        workers.round()
        assert abs(sum(workers.sizes) - workers.global_batch) <= len(speeds) / 2 + 1e-6 * workers.global_batch


@given(st.integers(1, 8), st.floats(1.0, 1000.0), st.integers(8, 4096))
def test_equal_speeds_give_equal_shares(count: int, speed: float, global_batch: int) -> None:
    workers = Workers([speed] * count, global_batch)
    workers.rounds(20)
    assert max(workers.sizes) - min(workers.sizes) <= 1
    assert min(workers.sizes) >= global_batch // count


def test_a_worker_four_times_slower_gets_a_quarter_of_the_others_share() -> None:
    workers = Workers([400.0, 400.0, 100.0], 450)
    workers.rounds(6)
    assert workers.sizes == [200, 200, 50]


def test_steps_of_equal_length_are_the_fixed_point_where_a_step_has_a_fixed_cost() -> None:
    workers = Workers([400.0, 400.0, 100.0], 450, overhead_s=0.1)
    workers.rounds(100)
    taken = [0.1 + size / speed for size, speed in zip(workers.sizes, workers.speeds, strict=True)]
    assert max(taken) < 1.05 * min(taken)


@given(SPEEDS, st.integers(0, 7), st.floats(0.0, 100.0))
def test_one_step_that_stalls_changes_nothing(speeds: list[float], who: int, stall: float) -> None:
    workers = Workers(speeds, 4096)
    workers.rounds(40)
    before = workers.sizes
    workers.round({who % len(speeds): stall})
    workers.rounds(3)
    assert max(abs(a - b) for a, b in zip(before, workers.sizes, strict=True)) <= max(2, 0.02 * max(before))


@given(st.lists(st.floats(0.5, 1000.0), min_size=1, max_size=30))
def test_a_share_changes_slowly_while_nobody_comes_or_goes(totals: list[float]) -> None:
    share = BatchShare(256, 4)
    for _ in range(4):
        share.measured(10, 1.0)
    share.follow(RoundSpeeds(40.0, 4, 4, share.speed))
    for total in totals:
        before = share.exact
        share.follow(RoundSpeeds(total, 4, 4, share.speed))
        assert before * (1 - STEP) - 1e-9 <= share.exact <= before + STEP * (256 - before) + 1e-9
        assert 1 <= share.size <= 256


def test_shares_follow_at_once_where_a_worker_goes() -> None:
    workers = Workers([100.0] * 3, 240)
    workers.rounds(10)
    for share in workers.shares[:2]:
        share.follow(RoundSpeeds(200.0, 2, 2, share.speed))
    assert workers.sizes[:2] == [120, 120]


def test_a_newcomer_whose_speed_is_unknown_counts_as_an_average_worker() -> None:
    workers = Workers([100.0, 300.0], 300)
    workers.rounds(10)
    newcomer = BatchShare(300, 3)
    for share in (*workers.shares, newcomer):
        share.follow(RoundSpeeds(400.0, 2, 3, share.speed))
    assert [*workers.sizes, newcomer.size] == [50, 150, 100]


@pytest.mark.parametrize("total", [float("nan"), float("inf"), -1.0, 0.0])
def test_sums_that_make_no_sense_leave_a_share_in_its_bounds(total: float) -> None:
    share = BatchShare(256, 4)
    for _ in range(4):
        share.measured(10, 1.0)
    share.follow(RoundSpeeds(total, 4, 4, share.speed))
    assert 1 <= share.size <= 256

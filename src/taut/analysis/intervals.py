"""What each worker did between one statistic and the next: statistics are totals since it began. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from taut.core.messages import TIME_PARTS, Statistics
from taut.supervisor.storage.store_reader import StatisticRecord


class Interval(Struct, frozen=True):
    """One worker from ``begin_s`` to ``end_s`` of the run. ``split``: the share of its time in each of ``TIME_PARTS``."""

    rank: int
    begin_s: float
    end_s: float
    samples_per_s: float
    bytes_per_s: float
    loss: float | None  # at the end
    staleness: float
    split: tuple[float, ...]


def intervals(records: Iterable[StatisticRecord], began: float, least_s: float = 0.0) -> dict[int, list[Interval]]:
    """Return the intervals of each worker, each at least ``least_s`` long, from statistics in the order of time.

        samples_per_s = (samples now - samples before) / (its wall time now - before)

    >>> def at(time, samples, wall_s): return StatisticRecord(time, 0, Statistics(samples=samples, wall_s=wall_s))
    >>> [one] = intervals([at(10.0, 0, 0.0), at(12.0, 300, 2.0)], began=8.0)[0]
    >>> one.begin_s, one.end_s, one.samples_per_s
    (2.0, 4.0, 150.0)
    """
    last: dict[int, StatisticRecord] = {}
    found: dict[int, list[Interval]] = {}
    for record in records:
        before = last.get(record.rank)
        if before is None or record.statistics.wall_s < before.statistics.wall_s:  # new, or resumed
            last[record.rank] = record
        elif record.time - before.time >= least_s and record.statistics.wall_s > before.statistics.wall_s:
            found.setdefault(record.rank, []).append(_interval(before, record, began))
            last[record.rank] = record
    return found


def _interval(before: StatisticRecord, after: StatisticRecord, began: float) -> Interval:
    old, new = before.statistics, after.statistics
    span_s = new.wall_s - old.wall_s
    return Interval(
        rank=after.rank,
        begin_s=before.time - began,
        end_s=after.time - began,
        samples_per_s=max(0, new.samples - old.samples) / span_s,
        bytes_per_s=max(0, new.bytes_sent - old.bytes_sent) / span_s,
        loss=new.loss,
        staleness=new.staleness,
        split=tuple(_part(old, new, part) / span_s for part in TIME_PARTS),
    )


def _part(old: Statistics, new: Statistics, part: str) -> float:
    spent: float = getattr(new, f"{part}_s") - getattr(old, f"{part}_s")
    return max(0.0, spent)

"""The curves of a run of any length in a bounded number of points. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from taut.core.messages import Statistics
from taut.core.staleness_counts import Counts
from taut.dashboard.records import PARTS, CurvePoint, WorkerPoint
from taut.dashboard.staleness_window import StalenessWindow
from taut.supervisor.metrics import finite, time_split

MOST_POINTS = 512
MOST_CURVES = 100  # workers with curves of their own


class ProgressMark(Struct, frozen=True):
    """The progress of a run at a moment. ``samples``: of all workers since the beginning; ``there``: the statistics of
    the workers that take part."""

    time_s: float
    samples: int
    loss: float | None
    there: Mapping[int, Statistics] = {}
    consensus: float | None = None
    late: Mapping[int, Counts] = {}  # how late updates were, of all workers that ever were


class History(Struct, frozen=True):
    """Points that are ``every_s`` apart. When there are too many, each two become one and ``every_s`` doubles, so that
    n seconds take at most ``MOST_POINTS`` points, and none of them was forgotten. ``halvings`` counts that.

        samples_per_s = (samples now - samples at the last point) / (time now - time of the last point)

    >>> history = History(every_s=1.0)
    >>> for second in range(4):
    ...     history = history.grown(ProgressMark(float(second), 50 * second, None))
    >>> [(point.time_s, point.samples_per_s) for point in history.points]
    [(1.0, 50.0), (2.0, 50.0), (3.0, 50.0)]
    """

    every_s: float = 1.0
    points: tuple[CurvePoint, ...] = ()
    last: ProgressMark | None = None
    halvings: int = 0
    staleness: StalenessWindow = StalenessWindow()

    def grown(self, mark: ProgressMark) -> History:
        """Add this mark, if it is time for another point."""
        last, staleness = self.last, self.staleness.grown(mark.time_s, mark.late)
        if last is None:
            return replace(self, last=mark, staleness=staleness)
        if mark.time_s - last.time_s < self.every_s:
            return replace(self, staleness=staleness)
        points = (*self.points, _point(last, mark))
        grown = replace(self, points=points, last=mark, staleness=staleness)
        return grown if len(points) <= MOST_POINTS else grown._halved()

    def _halved(self) -> History:
        points = self.points
        kept = [_joined(first, second) for first, second in zip(points[::2], points[1::2], strict=False)]
        if len(points) % 2:
            kept.append(points[-1])
        return replace(self, points=tuple(kept), every_s=2 * self.every_s, halvings=self.halvings + 1)


def _point(last: ProgressMark, mark: ProgressMark) -> CurvePoint:
    elapsed_s = mark.time_s - last.time_s
    ranks = sorted(mark.there)
    spent = {rank: _since(last.there.get(rank), mark.there[rank]) for rank in ranks}
    return CurvePoint(
        time_s=mark.time_s,
        # fewer samples than before: the run was resumed from a checkpoint
        samples_per_s=max(0, mark.samples - last.samples) / elapsed_s,
        loss=mark.loss,
        workers=len(ranks),
        ideal_per_s=_ideal(spent.values()),
        bytes_per_s=sum(each.bytes_sent for each in spent.values()) / elapsed_s,
        dense_per_s=sum(each.bytes_dense for each in spent.values()) / elapsed_s,
        consensus=mark.consensus,
        parts=_parts(spent.values()),
        ranks=tuple(_worker_point(rank, mark.there[rank], spent[rank], elapsed_s) for rank in ranks[:MOST_CURVES]),
    )


def _worker_point(rank: int, now: Statistics, spent: Statistics, elapsed_s: float) -> WorkerPoint:
    return WorkerPoint(rank, spent.samples / elapsed_s, finite(now.loss), finite(now.staleness), _parts([spent]))


def _since(before: Statistics | None, now: Statistics) -> Statistics:
    """Return what was added between two statistics of a worker. One that began anew has added all that it has."""
    if before is None or before.wall_s > now.wall_s or before.samples > now.samples:
        return now
    summed = ("samples", "bytes_sent", "bytes_dense", "wall_s", *(f"{part}_s" for part in PARTS[:-1]))
    return Statistics(**{name: max(0, getattr(now, name) - getattr(before, name)) for name in summed})


def _ideal(spent: Iterable[Statistics]) -> float | None:
    """Return the samples per second of workers that only compute and read data; None where nothing was computed."""
    worked = [(each.samples, each.compute_s + each.data_s) for each in spent]
    return finite(sum(samples / seconds for samples, seconds in worked if seconds > 0)) or None


def _parts(spent: Iterable[Statistics]) -> tuple[float, ...]:
    """Return the share of each of ``PARTS`` in the workers' time; all 0 where no time has passed."""
    split = [time_split(each) for each in spent]
    sums = [sum(each[part] for each in split) for part in PARTS]
    whole = sum(sums)
    return tuple(round(each / whole, 3) for each in sums) if whole > 0 else (0.0,) * len(PARTS)


def _joined(first: CurvePoint, second: CurvePoint) -> CurvePoint:
    """Return one point for two: means of rates and shares, and the later of the values that are no rates."""
    earlier = {each.rank: each for each in first.ranks}
    return replace(
        second,
        samples_per_s=(first.samples_per_s + second.samples_per_s) / 2,
        ideal_per_s=_mean(first.ideal_per_s, second.ideal_per_s),
        bytes_per_s=(first.bytes_per_s + second.bytes_per_s) / 2,
        dense_per_s=(first.dense_per_s + second.dense_per_s) / 2,
        parts=_means(first.parts, second.parts),
        ranks=tuple(
            replace(
                each,
                samples_per_s=(earlier[each.rank].samples_per_s + each.samples_per_s) / 2,
                parts=_means(earlier[each.rank].parts, each.parts),
            )
            if each.rank in earlier
            else each
            for each in second.ranks
        ),
    )


def _mean(first: float | None, second: float | None) -> float | None:
    return second if first is None else first if second is None else (first + second) / 2


def _means(first: tuple[float, ...], second: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(round((one + other) / 2, 3) for one, other in zip(first, second, strict=True))

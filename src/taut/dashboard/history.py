"""The curves of a run of any length in a bounded number of points. Pure."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from taut.dashboard.records import CurvePoint

MOST_POINTS = 512


class ProgressMark(Struct, frozen=True):
    """The progress of a run at a moment: ``samples`` of all workers since the beginning."""

    time_s: float
    samples: int
    loss: float | None
    workers: int


class History(Struct, frozen=True):
    """Points that are ``every_s`` apart. When there are too many, each two become one and ``every_s`` doubles, so that
    n seconds take at most ``MOST_POINTS`` points, and none of them was forgotten. ``halvings`` counts that.

        samples_per_s = (samples now - samples at the last point) / (time now - time of the last point)

    >>> history = History(every_s=1.0)
    >>> for second in range(4):
    ...     history = history.grown(ProgressMark(float(second), 50 * second, None, 1))
    >>> [(point.time_s, point.samples_per_s) for point in history.points]
    [(1.0, 50.0), (2.0, 50.0), (3.0, 50.0)]
    """

    every_s: float = 1.0
    points: tuple[CurvePoint, ...] = ()
    last: ProgressMark | None = None
    halvings: int = 0

    def grown(self, mark: ProgressMark) -> History:
        """Add this mark, if it is time for another point."""
        last = self.last
        if last is None:
            return replace(self, last=mark)
        elapsed_s = mark.time_s - last.time_s
        if elapsed_s < self.every_s:
            return self
        # fewer samples than before: the run was resumed from a checkpoint
        rate = max(0, mark.samples - last.samples) / elapsed_s
        points = (*self.points, CurvePoint(mark.time_s, rate, mark.loss, mark.workers))
        grown = replace(self, points=points, last=mark)
        return grown if len(points) <= MOST_POINTS else grown._halved()

    def _halved(self) -> History:
        points, kept = self.points, []
        for first, second in zip(points[::2], points[1::2], strict=False):
            rate = (first.samples_per_s + second.samples_per_s) / 2
            kept.append(CurvePoint(second.time_s, rate, second.loss, second.workers))
        if len(points) % 2:
            kept.append(points[-1])
        return replace(self, points=tuple(kept), every_s=2 * self.every_s, halvings=self.halvings + 1)

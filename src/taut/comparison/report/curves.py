"""From records to lines: quality over time or over bytes, the mean over seeds and the band from lowest to highest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from taut.comparison.runs.record import RunRecord
from taut.comparison.runs.target import Metric, loss_curve

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

Over = Literal["time", "bytes"]
POINTS = 100


@dataclass(frozen=True)
class Curve:
    """The line of one configuration: the mean over seeds, and the lowest and highest seed."""

    x: Array
    mean: Array
    low: Array
    high: Array

    @property
    def banded(self) -> bool:
        """Return whether seeds differ at all."""
        return bool((self.high > self.low).any())


def quality(record: RunRecord, metric: Metric) -> list[tuple[float, float]]:
    """Return times and quality on the way; fewer than two points are no curve."""
    return list(record.scores) if metric == "score" else loss_curve(record)


def has_curves(records: Sequence[RunRecord], metric: Metric) -> bool:
    """Return whether quality is known on the way in every run that finished."""
    finished = [record for record in records if record.finished]
    return bool(finished) and all(len(quality(record, metric)) > 1 for record in finished)


def curve(records: Sequence[RunRecord], metric: Metric, over: Over) -> Curve | None:
    """Return the runs of one configuration as one line, as far as all of them go; None where there is none."""
    import numpy as np

    lines = [line for line in (_line(record, metric, over) for record in records if record.finished) if line is not None]
    if not lines:
        return None
    first, last = max(x[0] for x, _ in lines), min(x[-1] for x, _ in lines)
    if last <= first:
        return None
    grid = np.linspace(first, last, POINTS)
    if over == "bytes" and first > 0:
        grid = np.geomspace(first, last, POINTS)
    return _over_seeds(grid, lines)


def _over_seeds(grid: Array, lines: Sequence[tuple[Array, Array]]) -> Curve:
    import numpy as np

    rows = np.stack([np.interp(grid, x, y) for x, y in lines])
    return Curve(grid, rows.mean(axis=0), rows.min(axis=0), rows.max(axis=0))


def _line(record: RunRecord, metric: Metric, over: Over) -> tuple[Array, Array] | None:
    import numpy as np

    points = np.array(quality(record, metric), dtype=np.float64)
    if len(points) < 2:
        return None
    if over == "time":
        return points[:, 0], points[:, 1]
    times = [moment.time_s for moment in record.history]
    sent = np.interp(points[:, 0], times, [moment.bytes_sent for moment in record.history])
    later = np.concatenate([[True], np.diff(sent) > 0]) & (sent > 0)  # the first point at each number of bytes
    return (sent[later], points[later, 1]) if later.sum() > 1 else None


def distance_curve(records: Sequence[RunRecord]) -> Curve | None:
    """Return the consensus distance over time."""
    import numpy as np

    lines = [np.array(record.distances) for record in records if record.finished and len(record.distances) > 1]
    if not lines:
        return None
    grid = np.linspace(max(line[0, 0] for line in lines), min(line[-1, 0] for line in lines), POINTS)
    return _over_seeds(grid, [(line[:, 0], line[:, 1]) for line in lines])

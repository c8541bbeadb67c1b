"""The data of charts: the runs by configuration, with the name and the look of each configuration in all charts;
and their lines: quality over time or over bytes, the mean over seeds and the band from lowest to highest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from taut.comparison.report.labels import names
from taut.comparison.report.style import ConfigurationStyle, label_ends, look
from taut.comparison.report.table import Row, series
from taut.comparison.runs.comparison import Comparison
from taut.comparison.runs.record import RunRecord
from taut.comparison.runs.target import Metric, loss_curve

MOST_PANELS = 4
POINTS = 100  # of a line
Series = tuple[str, str, str]
Over = Literal["time", "bytes"]
Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """The line of one configuration: the mean over seeds, and the lowest and highest seed."""

    x: Array
    mean: Array
    low: Array
    high: Array


@dataclass(frozen=True)
class ChartData:
    """The comparison that is drawn, and how its configurations look in all charts."""

    made: Comparison

    @cached_property
    def finished(self) -> list[RunRecord]:
        return [record for record in self.made.records if record.finished]

    @cached_property
    def labels(self) -> dict[Series, str]:
        return names(self.made.summary)

    @cached_property
    def looks(self) -> dict[Series, ConfigurationStyle]:
        return {each: look(index) for index, each in enumerate(self.labels)}

    @cached_property
    def counts(self) -> list[int]:
        """Return the numbers of workers with which a run finished."""
        return sorted({record.workers for record in self.finished})

    @property
    def metric(self) -> Metric:
        return self.made.metric

    @property
    def panels(self) -> list[int]:
        """Return the numbers of workers that get a panel: all, or some of them from the fewest to the most."""
        if len(self.counts) <= MOST_PANELS:
            return self.counts
        last = len(self.counts) - 1
        return [self.counts[round(index * last / (MOST_PANELS - 1))] for index in range(MOST_PANELS)]

    @property
    def virtual(self) -> str:
        """Return the word that seconds need where they are simulated."""
        return "virtual " if self.made.job.simulated else ""

    def runs(self, which: Series, workers: int) -> list[RunRecord]:
        return [
            record
            for record in self.finished
            if (record.strategy, record.codec, record.topology) == which and record.workers == workers
        ]

    def rows(self, workers: int | None = None) -> list[Row]:
        """Return the rows of the summary that have results, with so many workers (None: any number)."""
        some: Sequence[Row] = self.made.summary
        return [row for row in some if row["runs"] > row["failed"] and workers in (None, row["workers"])]

    def label(self, row: Row, with_workers: bool = False) -> str:
        said = self.labels[series(row)]
        return f"{said}, {row['workers']}" if with_workers else said

    def look(self, row: Row) -> ConfigurationStyle:
        return self.looks[series(row)]

    def plot(self, axes: Any, lines: Mapping[Series, Curve], unit: float = 1.0) -> None:
        """Draw a named line for each configuration, with a band from the lowest to the highest seed."""
        for which, line in lines.items():
            style = self.looks[which]
            axes.plot(line.x / unit, line.mean, color=style.color, linestyle=style.dash, linewidth=1.6)
            if (line.high > line.low).any():  # the seeds differ
                axes.fill_between(line.x / unit, line.low, line.high, color=style.color, alpha=0.15, linewidth=0)
        axes.grid(True)

    def name_ends(self, axes: Any, ends: Mapping[Series, float]) -> None:
        """Write the name of each configuration at the height where its line ends."""
        label_ends(axes, [(height, self.labels[which], self.looks[which].color) for which, height in ends.items()])


def quality(record: RunRecord, metric: Metric) -> list[tuple[float, float]]:
    """Return times and quality on the way; fewer than two points are no curve."""
    return list(record.scores) if metric == "score" else loss_curve(record)


def has_curves(records: Sequence[RunRecord], metric: Metric) -> bool:
    """Return whether quality is known on the way in every run that finished."""
    finished = [record for record in records if record.finished]
    return bool(finished) and all(len(quality(record, metric)) > 1 for record in finished)


def curve(records: Sequence[RunRecord], metric: Metric, over: Over) -> Curve | None:
    """Return the runs of one configuration as one line, as far as all of them go; None where there is none."""
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
    rows = np.stack([np.interp(grid, x, y) for x, y in lines])
    return Curve(grid, rows.mean(axis=0), rows.min(axis=0), rows.max(axis=0))


def _line(record: RunRecord, metric: Metric, over: Over) -> tuple[Array, Array] | None:
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
    lines = [np.array(record.distances) for record in records if record.finished and len(record.distances) > 1]
    if not lines:
        return None
    grid = np.linspace(max(line[0, 0] for line in lines), min(line[-1, 0] for line in lines), POINTS)
    return _over_seeds(grid, [(line[:, 0], line[:, 1]) for line in lines])

"""The data of charts: the runs by configuration, with the name and the look of each configuration in all charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from taut.comparison.report.curves import Curve
from taut.comparison.report.labels import names
from taut.comparison.report.style import ConfigurationStyle, label_ends, look
from taut.comparison.report.table import Row, series
from taut.comparison.runs.comparison import Comparison
from taut.comparison.runs.record import RunRecord
from taut.comparison.runs.target import Metric

MOST_PANELS = 4
Series = tuple[str, str, str]


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
            if line.banded:
                axes.fill_between(line.x / unit, line.low, line.high, color=style.color, alpha=0.15, linewidth=0)
        axes.grid(True)

    def name_ends(self, axes: Any, ends: Mapping[Series, float]) -> None:
        """Write the name of each configuration at the height where its line ends."""
        label_ends(axes, [(height, self.labels[which], self.looks[which].color) for which, height in ends.items()])

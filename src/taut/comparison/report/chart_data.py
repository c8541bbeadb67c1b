"""What charts are drawn from: the runs by configuration, with the names and the looks that these have in all charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from taut.comparison.report.labels import names
from taut.comparison.report.style import Look, look
from taut.comparison.report.table import Row, series
from taut.comparison.runs.comparison import Comparison
from taut.comparison.runs.record import RunRecord
from taut.comparison.runs.target import Metric

MOST_PANELS = 4
Series = tuple[str, str, str]


@dataclass(frozen=True)
class Scene:
    """``made``: what is drawn."""

    made: Comparison

    @cached_property
    def finished(self) -> list[RunRecord]:
        return [record for record in self.made.records if record.finished]

    @cached_property
    def labels(self) -> dict[Series, str]:
        return names(self.made.summary)

    @cached_property
    def looks(self) -> dict[Series, Look]:
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
        return [self.counts[round(place * last / (MOST_PANELS - 1))] for place in range(MOST_PANELS)]

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

    def look(self, row: Row) -> Look:
        return self.looks[series(row)]

"""The distribution of staleness in the last minute and in the whole run, from workers' totals. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from taut.core.staleness_counts import Counts, since, summed
from taut.dashboard.records import StalenessLine, StalenessView

WINDOW_S, EVERY_S = 60.0, 5.0
MOST_LINES = 100  # workers with a line of their own
Mark = tuple[float, Mapping[int, Counts]]


class StalenessWindow(Struct, frozen=True):
    """Workers' totals ``EVERY_S`` apart: the newest that is a minute old, or else the oldest, and all after it.

    >>> window = StalenessWindow()
    >>> for second in range(100):
    ...     window = window.grown(float(second), {3: (second, 5)})
    >>> [(line.rank, line.minute, line.whole) for line in window.view().lines]
    [(None, (64, 0), (99, 5)), (3, (64, 0), (99, 5))]
    """

    marks: tuple[Mark, ...] = ()
    now: Mapping[int, Counts] = {}

    def grown(self, time_s: float, now: Mapping[int, Counts]) -> StalenessWindow:
        """Take the workers' totals at ``time_s``."""
        marks = self.marks
        if not marks or time_s - marks[-1][0] >= EVERY_S:
            marks = (*marks, (time_s, now))
        while len(marks) > 1 and time_s - marks[1][0] >= WINDOW_S:
            marks = marks[1:]
        return StalenessWindow(marks, now)

    def view(self) -> StalenessView:
        """Return both distributions, of all workers together and of each."""
        before = self.marks[0][1] if self.marks else {}
        lines = [StalenessLine(rank, since(before.get(rank, ()), late), late) for rank, late in sorted(self.now.items())]
        if not lines:
            return StalenessView()
        whole = StalenessLine(None, summed(one.minute for one in lines), summed(one.whole for one in lines))
        return StalenessView(lines=(whole, *lines[:MOST_LINES]))

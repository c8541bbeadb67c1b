"""Curves of what the scripts log, and of validation, in a bounded number of points; and the latest images."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from taut.dashboard.records import ImageLine, MetricLine, Metrics
from taut.errors import Misuse
from taut.supervisor.storage.store_reader import opened

MOST_NAMES, MOST_RANKS, MOST_POINTS = 32, 32, 128
MOST_ROWS = 20_000  # of one reading: the next one goes on there
MOST_IMAGES = 12
Point = tuple[float, int, float]  # seconds since the run began, step, value


class Curve:
    """Points of one name and worker. When there are too many, each second one is dropped, and of later ones as many.

    >>> curve = Curve()
    >>> for step in range(300):
    ...     curve.add((float(step), step, 0.5))
    >>> len(curve.points), curve.points[1], curve.last[1]
    (75, (4.0, 4, 0.5), 299)
    """

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.last: Point = (0.0, 0, 0.0)
        self._every, self._seen = 1, 0

    def add(self, point: Point) -> None:
        """Take the next point."""
        self.last = point
        if self._seen % self._every == 0:
            self.points.append(point)
        self._seen += 1
        if len(self.points) > MOST_POINTS:
            self.points, self._every = self.points[::2], 2 * self._every


class MetricCurves:
    """Follows the tables ``metric`` and ``image`` of the run in ``run_dir``. Read from one thread at a time."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._row = 0
        self._curves: dict[str, dict[int, Curve]] = {}

    def read(self) -> Metrics:
        """Return the curves up to now. Raise ``Misuse`` if the store cannot be read."""
        try:
            with opened(self._run_dir) as database:
                self._follow(database)
                kept = database.execute(
                    "select max(rowid), name, rank, step from image group by name, rank order by 1 desc limit ?",
                    (MOST_IMAGES,),
                ).fetchall()
        except (sqlite3.Error, ValueError) as error:
            raise Misuse(f"run {self._run_dir.name!r}", "a readable run", str(error)) from error
        lines = [
            MetricLine(name, rank, (*curve.points, *([] if curve.last == curve.points[-1] else [curve.last])))
            for name, each in sorted(self._curves.items())
            for rank, curve in sorted(each.items())
        ]
        return Metrics(self._row, tuple(lines), tuple(ImageLine(*row) for row in kept))

    def _follow(self, database: sqlite3.Connection) -> None:
        (began,) = database.execute("select started from run").fetchone() or (0.0,)
        after = "select rowid, time, rank, step, name, value from metric where rowid > ? order by rowid limit ?"
        for row, time, rank, step, name, value in database.execute(after, (self._row, MOST_ROWS)):
            self._row = row
            each = self._curves.get(name)
            if each is None and len(self._curves) < MOST_NAMES:
                each = self._curves.setdefault(name, {})
            if each is None or value is None or (rank not in each and len(each) >= MOST_RANKS):
                continue
            each.setdefault(rank, Curve()).add((round(time - began, 2), step, value))

    def image(self, row: int) -> bytes:
        """Return a logged image, a PNG file. Raise ``Misuse`` where there is none."""
        try:
            with opened(self._run_dir) as database:
                found = database.execute("select png from image where rowid = ?", (row,)).fetchone()
        except (sqlite3.Error, ValueError) as error:
            raise Misuse(f"run {self._run_dir.name!r}", "a readable run", str(error)) from error
        if found is None:
            raise Misuse(f"image {row}", "one that is still kept", "the last ones of each name are")
        return bytes(found[0])

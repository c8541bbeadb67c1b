"""Follows a run's store: reads what is new since the last time, while the supervisor may be writing."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from taut.errors import Misuse
from taut.supervisor.storage import store_reader as store
from taut.supervisor.storage.store_writer import FIELDS, FILE

MOST_STATISTICS = 20_000
LEAST_STRETCHES = 32  # of time, for any number of workers


@dataclass(frozen=True, slots=True)
class Fresh:
    """The store's present contents (summary, settings, outcome, workers), and new statistics and events, these with
    row numbers."""

    summary: store.RunSummary
    settings: dict[str, Any]
    outcome: dict[str, Any]
    workers: tuple[store.WorkerRecord, ...]
    statistics: tuple[store.StatisticRecord, ...]
    events: tuple[tuple[int, store.EventRecord], ...]


class StoreFollower:
    """Follows the run in ``run_dir``. The first reading has everything, each further one what is new.

    A run of days leaves millions of statistics, two a second of each worker. If there are more than ``most``, the first
    reading takes the last ones of equal stretches of time, enough for curves; the newest of each worker are included.
    """

    def __init__(self, run_dir: Path, most: int = MOST_STATISTICS) -> None:
        self.run_dir, self._most = Path(run_dir), most
        self._statistic = self._event = 0  # last rows read

    def read(self) -> Fresh:
        """Return what is new. Raise ``Misuse`` if the store cannot be read."""
        try:
            with store.opened(self.run_dir) as database:
                database.execute("begin")  # a consistent snapshot
                return self._read(database)
        except (sqlite3.Error, ValueError) as error:
            path = self.run_dir / FILE
            raise Misuse(f"run {self.run_dir.name!r}", "a readable run", f"{path} cannot be read: {error}") from error

    def _read(self, database: sqlite3.Connection) -> Fresh:
        summary = store.summarised(self.run_dir, database)
        settings, outcome = database.execute("select settings, outcome from run").fetchone()
        workers = database.execute("select rank, host, pid, joined, gone, reason from worker order by rank").fetchall()
        measured = self._measured(database)
        events = database.execute(
            "select rowid, time, kind, text from event where rowid > ? order by rowid", (self._event,)
        ).fetchall()
        self._statistic = measured[-1][0] if measured else self._statistic
        self._event = events[-1][0] if events else self._event
        return Fresh(
            summary=summary,
            settings=json.loads(settings),
            outcome=json.loads(outcome) if outcome else {},
            workers=tuple(store.WorkerRecord(*row) for row in workers),
            statistics=tuple(store.StatisticRecord(row[1], row[2], store.statistics_of(row[3:])) for row in measured),
            events=tuple((row[0], store.EventRecord(*row[1:])) for row in events),
        )

    def _measured(self, database: sqlite3.Connection) -> list[tuple[Any, ...]]:
        columns = f"time, rank, {', '.join(FIELDS)}"
        if self._statistic == 0:
            count, ranks, first, last = database.execute(
                "select count(*), count(distinct rank), min(time), max(time) from statistic"
            ).fetchone()
            if count > self._most:
                stretch_s = (last - first) / max(LEAST_STRETCHES, self._most // ranks) or 1.0
                # SQLite takes the other columns from the row that has the max()
                thinned = (
                    f"select max(rowid) as row, {columns} from statistic group by rank, cast((time - ?) / ? as integer)"
                )
                return database.execute(f"{thinned} order by row", (first, stretch_s)).fetchall()
        every = f"select rowid, {columns} from statistic where rowid > ? order by rowid"
        return database.execute(every, (self._statistic,)).fetchall()

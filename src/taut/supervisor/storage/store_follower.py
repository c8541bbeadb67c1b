"""Follows a run's store: reads what is new since the last time, while the supervisor may be writing."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from taut.errors import Misuse
from taut.supervisor.storage import store_reader as store
from taut.supervisor.storage.store_writer import FILE

MOST_STATISTICS = 20_000
LEAST_STRETCHES = 32  # of time, for any number of workers


class StoreFollower:
    """Follows the run in ``run_dir``. The first reading has everything, each further one what is new.

    A run of days leaves millions of statistics, two a second of each worker. If there are more than ``most``, the first
    reading takes the last ones of equal stretches of time, enough for curves; the newest of each worker are included.
    """

    def __init__(self, run_dir: Path, most: int = MOST_STATISTICS) -> None:
        self.run_dir, self._most = Path(run_dir), most
        self._statistic = self._event = 0  # last rows read

    def read(self) -> store.StoredRun:
        """Return the run with its new statistics and events. Raise ``Misuse`` if the store cannot be read."""
        try:
            with store.opened(self.run_dir) as database:
                database.execute("begin")  # a consistent snapshot
                measured = self._measured(database)
                found = store.read_run(self.run_dir, database, measured, self._event)
        except (sqlite3.Error, ValueError) as error:
            path = self.run_dir / FILE
            raise Misuse(f"run {self.run_dir.name!r}", "a readable run", f"{path} cannot be read: {error}") from error
        self._statistic = measured[-1][0] if measured else self._statistic
        self._event = found.event_rows[-1] if found.event_rows else self._event
        return found

    def _measured(self, database: sqlite3.Connection) -> list[tuple[Any, ...]]:
        if self._statistic == 0:
            count, ranks, first, last = database.execute(
                "select count(*), count(distinct rank), min(time), max(time) from statistic"
            ).fetchone()
            if count > self._most:
                stretch_s = (last - first) / max(LEAST_STRETCHES, self._most // ranks) or 1.0
                # SQLite takes the other columns from the row that has the max()
                columns = store.ROW.replace("rowid", "max(rowid)", 1)
                thinned = f"select {columns} from statistic group by rank, cast((time - ?) / ? as integer) order by row"
                return database.execute(thinned, (first, stretch_s)).fetchall()
        every = f"select {store.ROW} from statistic where rowid > ? order by rowid"
        return database.execute(every, (self._statistic,)).fetchall()

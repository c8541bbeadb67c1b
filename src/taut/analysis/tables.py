"""The tables of a run's store, column by column. docs/store.md describes the columns."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from msgspec import Struct

from taut.errors import Misuse
from taut.specs import did_you_mean
from taut.supervisor.storage import schema
from taut.supervisor.storage.store_reader import DamagedRun, opened

STORED = {  # the name for users, and the table in the store
    "workers": "worker",
    "statistics": "statistic",
    "progress": "progress",
    "metrics": "metric",
    "hosts": "host",
    "events": "event",
}


class Table(Struct, frozen=True):
    """A table: the name and the values of each column, in the order of the rows."""

    name: str
    columns: dict[str, list[Any]]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows, each as an object.

        >>> Table("t", {"a": [1, 2], "b": [3, 4]}).rows()
        [{'a': 1, 'b': 3}, {'a': 2, 'b': 4}]
        """
        return [dict(zip(self.columns, row, strict=True)) for row in zip(*self.columns.values(), strict=True)]


def read_table(run_dir: Path, name: str) -> Table:
    """Return a table of the run in ``run_dir``. ``time_s``, where there is a time, is in seconds since the run began."""
    if name not in STORED:
        raise Misuse(f"table {name!r}", f"one of {', '.join(STORED)}", did_you_mean(name, STORED))
    stored = STORED[name]
    chosen = list(schema.TABLES[stored])
    at = "joined" if name == "workers" else "time"
    try:
        with opened(run_dir) as database:
            rows = database.execute(f"select {', '.join(chosen)} from {stored} order by {at}, rowid").fetchall()
            began = min([row[0] for row in database.execute("select started from run")] or [0.0])
    except (sqlite3.Error, ValueError) as error:
        raise DamagedRun(run_dir, error) from error
    columns: dict[str, list[Any]] = {column: [row[index] for row in rows] for index, column in enumerate(chosen)}
    if "time" in columns:
        columns = {"time_s": [None if time is None else time - began for time in columns["time"]], **columns}
    return Table(name, columns)

"""A run's memory: one SQLite file per run, written by its supervisor while it goes. store_reader.py reads
it."""

from __future__ import annotations

import json
import math
import os
import socket
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from taut.core.messages import Statistics
from taut.errors import StorageFailed, Superseded
from taut.supervisor.view import Outcome

FILE = "run.sqlite"
STATISTIC_EVERY_S = 0.5  # of one worker; what comes faster replaces what waits
FIELDS = Statistics.__struct_fields__

_TABLES = f"""
create table if not exists run (name text primary key, started real, ended real, command text, settings text,
    versions text, outcome text, host text, pid integer);
create table if not exists worker (rank integer primary key, host text, pid integer, joined real, gone real,
    reason text);
create table if not exists statistic (time real, rank integer, {", ".join(FIELDS)});
create table if not exists event (time real, kind text, text text);
create table if not exists memory (id integer primary key, term integer, beat real, address text,
    bind text, advertise text, data blob);
create table if not exists ahead (id integer primary key, data blob);
"""


def plain(value: Any) -> Any:
    """Values as JSON has them: records become objects, what is not finite becomes null.

    >>> plain({"loss": float("nan"), "at": Path("a/b"), "of": (1, 2)})
    {'loss': None, 'at': 'a/b', 'of': [1, 2]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, msgspec.Struct):
        return plain(msgspec.structs.asdict(value))
    if hasattr(value, "__dataclass_fields__"):
        return {name: plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value if value is None or isinstance(value, bool | int | str) else str(value)


@contextmanager
def _storage(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StorageFailed(f"{path} could not be written: {error}") from error


class StoreWriter:
    """Writes one run. Times are seconds since 1970. Nothing is on disk before `flush`, which writes all in
    one go.

    Every method may raise StorageFailed; what was flushed before stays readable.
    """

    def __init__(self, run_dir: Path, name: str) -> None:
        self.path = run_dir / FILE
        self._waiting: dict[int, tuple[float, Statistics]] = {}
        self._written_s: dict[int, float] = {}
        with _storage(self.path):
            run_dir.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(self.path, check_same_thread=False)
            try:
                self._database.execute("pragma journal_mode = wal")
                # a crash of the machine may cost the last second of statistics, never the file
                self._database.execute("pragma synchronous = normal")
                self._database.executescript(_TABLES)
            except sqlite3.Error:
                self._database.close()
                raise
        self.name = name

    def begin(self, started: float, command: str, settings: Mapping[str, object], versions: Mapping[str, str]) -> None:
        """Keep what is known at the start."""
        texts = (command, json.dumps(plain(settings)), json.dumps(plain(versions)))
        self._run(
            "insert or replace into run values (?, ?, null, ?, ?, ?, null, ?, ?)",
            (self.name, started, *texts, socket.gethostname(), os.getpid()),
        )
        self.flush()

    def resumed(self, time: float) -> int:
        """The run goes on from a checkpoint, with new workers; the supervisor's term from now on. Written with `begin`: a
        stand-by that has found the former one gone must not take over from it now."""
        self._run("update memory set term = term + 1", ())
        with _storage(self.path):
            row = self._database.execute("select term from memory").fetchone()
        self._run("update worker set gone = ?, reason = 'before the run was resumed' where gone is null", (time,))
        return 0 if row is None else int(row[0])

    def claim(self, former_term: int) -> None:
        """Take over from the supervisor of ``former_term``. Of all that try, one does; ``Superseded`` for the others."""
        with _storage(self.path), self._database:  # one transaction: to look first and write then would let two through
            found = self._database.execute("update memory set term = term + 1 where term = ?", (former_term,))
            mine = found.rowcount == 1
            if mine:  # who looks now must not find the process that is gone
                self._database.execute("update run set host = ?, pid = ?", (socket.gethostname(), os.getpid()))
        if not mine:
            raise Superseded(f"another supervisor has taken over from that of term {former_term}")

    def joined(self, time: float, rank: int, host: str, pid: int) -> None:
        self._run("insert or replace into worker values (?, ?, ?, ?, null, '')", (rank, host, pid, time))

    def departed(self, time: float, rank: int, reason: str) -> None:
        self._run("update worker set gone = ?, reason = ? where rank = ?", (time, reason, rank))

    def event(self, time: float, kind: str, text: str) -> None:
        self._run("insert into event values (?, ?, ?)", (time, kind, text))

    def measured(self, time: float, rank: int, statistics: Statistics, final: bool = False) -> None:
        """Keep these statistics, at most two a second of one worker, and the last in any case."""
        if not final and time - self._written_s.get(rank, -math.inf) < STATISTIC_EVERY_S:
            self._waiting[rank] = (time, statistics)
            return
        self._waiting.pop(rank, None)
        self._written_s[rank] = time
        values = [plain(getattr(statistics, name)) for name in FIELDS]
        marks = ", ".join("?" * (2 + len(FIELDS)))
        self._run(f"insert into statistic values ({marks})", (time, rank, *values))

    def remember(self, time: float, term: int, place: tuple[str, str, str], data: bytes) -> None:
        """Keep what the supervisor must not forget, and that it lives. ``place``: address, bind, advertise. Raises
        ``Superseded`` where another one, of a higher term, has taken over."""
        self._check_term(term)
        self._run("insert or replace into memory values (0, ?, ?, ?, ?, ?, ?)", (term, time, *place, data))
        self._run("delete from ahead", ())  # it is among the data

    def append(self, term: int, data: bytes) -> None:
        """Keep this beside what was remembered last; ``Superseded`` as there. The process may die after the next `flush`,
        and it is not lost."""
        self._check_term(term)
        self._run("insert into ahead (data) values (?)", (data,))

    def _check_term(self, term: int) -> None:
        with _storage(self.path):
            row = self._database.execute("select term from memory").fetchone()
        if row is not None and row[0] > term:
            raise Superseded(f"a supervisor of term {row[0]} has taken over; this one is of term {term}")

    def finished(self, time: float, outcome: Outcome) -> None:
        """Keep how it ended."""
        for rank, (measured, statistics) in list(self._waiting.items()):
            self.measured(measured, rank, statistics, final=True)
        text = json.dumps(plain(outcome))
        self._run("update run set ended = ?, outcome = ? where name = ?", (time, text, self.name))
        self.flush()

    def flush(self) -> None:
        """Everything so far to disk."""
        with _storage(self.path):
            try:
                self._database.commit()
            except sqlite3.Error:
                with suppress(sqlite3.Error):
                    self._database.rollback()  # else the next attempt meets this one's rests
                raise

    def close(self) -> None:
        """Flush and let go. A disk that is full by now costs the last second only, so that is no error
        here."""
        with suppress(StorageFailed):
            self.flush()
        self._database.close()

    def _run(self, statement: str, values: tuple[object, ...]) -> None:
        with _storage(self.path):
            self._database.execute(statement, values)

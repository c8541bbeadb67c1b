"""A run's store: one SQLite file per run, written by its supervisor. store_reader.py reads it."""

from __future__ import annotations

import json
import math
import os
import socket
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from taut.core.messages import HostUse, MetricPoint, Statistics
from taut.errors import StorageFailed, Superseded
from taut.supervisor.storage import schema
from taut.supervisor.view import ClusterView, Outcome

FILE = "run.sqlite"
HOST_EVERY_S = 5.0  # for one host, whose workers all say the same
STATISTIC_EVERY_S = 0.5  # for one worker; later ones replace those that wait
FIELDS = Statistics.__struct_fields__
MOST_IMAGES = 32  # of one name and worker: older ones go


def plain(value: Any) -> Any:
    """Return a value as JSON has it: records become objects, numbers that are not finite become null.

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


def _cell(value: object) -> object:
    """Return a field of the statistics as SQLite takes it: counts as text, "0 3 1"."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else plain(value)


@contextmanager
def _storage(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError, schema.NewerStore) as error:
        raise StorageFailed(f"{path} could not be written: {error}") from error


class StoreWriter:
    """Writer of one run. Times are seconds since 1970. All is on disk after `flush`, in one transaction.

    Every method may raise StorageFailed; flushed data stays readable."""

    def __init__(self, run_dir: Path, name: str) -> None:
        self.path = run_dir / FILE
        self._waiting: dict[int, tuple[float, Statistics]] = {}
        self._written_s: dict[int, float] = {}
        self._hosts_s: dict[str, float] = {}
        with _storage(self.path):
            run_dir.mkdir(parents=True, exist_ok=True)
            self._database = self._open()
        self.name = name

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, check_same_thread=False)
        try:
            database.execute("pragma journal_mode = wal")
            # a crash of the machine may lose the last second of statistics, never the file
            database.execute("pragma synchronous = normal")
            schema.migrate(database)
        except (sqlite3.Error, schema.NewerStore):
            database.close()
            raise
        return database

    def begin(self, started: float, command: str, settings: Mapping[str, object], versions: Mapping[str, str]) -> None:
        """Write what is known at the start."""
        texts = (command, json.dumps(plain(settings)), json.dumps(plain(versions)))
        self._insert("run", self.name, started, None, *texts, None, socket.gethostname(), os.getpid())
        self.flush()

    def resumed(self, time: float) -> int:
        """Note that the run goes on from a checkpoint, with new workers, and return the supervisor's term. Written
        with `begin`: a stand-by that found the previous supervisor gone must not take over now."""
        self._run("update memory set term = term + 1", ())
        with _storage(self.path):
            row = self._database.execute("select term from memory").fetchone()
        self._run("update worker set gone = ?, reason = 'before the run was resumed' where gone is null", (time,))
        return 0 if row is None else int(row[0])

    def claim(self, previous_term: int) -> None:
        """Take over from the supervisor of ``previous_term``. Raise ``Superseded`` for all processes but one."""
        with _storage(self.path), self._database:  # one transaction, so that only one process succeeds
            found = self._database.execute("update memory set term = term + 1 where term = ?", (previous_term,))
            mine = found.rowcount == 1
            if mine:  # readers must not find the dead process
                self._database.execute("update run set host = ?, pid = ?", (socket.gethostname(), os.getpid()))
        if not mine:
            raise Superseded(f"another supervisor has taken over from that of term {previous_term}")

    def joined(self, time: float, rank: int, host: str, pid: int) -> None:
        self._insert("worker", rank, host, pid, time, None, "", 0)

    def paused(self, time: float, rank: int, paused: bool) -> None:
        self._run("update worker set paused = ? where rank = ?", (int(paused), rank))

    def departed(self, time: float, rank: int, reason: str) -> None:
        self._run("update worker set gone = ?, reason = ? where rank = ?", (time, reason, rank))

    def event(self, time: float, kind: str, text: str) -> None:
        self._insert("event", time, kind, text)

    def measured(self, time: float, rank: int, statistics: Statistics, final: bool = False) -> None:
        """Keep these statistics, at most two a second for one worker, and the last in any case."""
        if not final and time - self._written_s.get(rank, -math.inf) < STATISTIC_EVERY_S:
            self._waiting[rank] = (time, statistics)
            return
        self._waiting.pop(rank, None)
        self._written_s[rank] = time
        self._insert("statistic", time, rank, *(_cell(getattr(statistics, name)) for name in FIELDS))

    def host_used(self, time: float, host: str, use: HostUse) -> None:
        """Keep how busy a host is, at most once in ``HOST_EVERY_S``."""
        if time - self._hosts_s.get(host, -math.inf) >= HOST_EVERY_S:
            self._hosts_s[host] = time
            self._insert("host", time, host, *(plain(getattr(use, name)) for name in HostUse.__struct_fields__))

    def progressed(self, time: float, view: ClusterView) -> None:
        """Keep how far the run is."""
        known = {"time": time, "workers": view.here}
        columns = schema.TABLES["progress"]
        values = (known[name] if name in known else getattr(view, name) for name in columns)
        self._insert("progress", *map(plain, values))

    def logged(self, time: float, rank: int, points: Sequence[MetricPoint]) -> None:
        """Keep values that the script of a worker has logged."""
        for point in points:
            self._insert("metric", time, rank, point.step, point.name, plain(point.value))

    def pictured(self, time: float, rank: int, step: int, name: str, png: bytes) -> None:
        """Keep an image that the script of a worker has logged, and the last ``MOST_IMAGES`` of its name."""
        self._insert("image", time, rank, step, name, png)
        older = "select rowid from image where rank = ? and name = ? order by rowid desc limit -1 offset ?"
        self._run(f"delete from image where rowid in ({older})", (rank, name, MOST_IMAGES))

    def remember(self, time: float, term: int, reached_at: tuple[str, str, str], data: bytes) -> None:
        """Keep the supervisor's snapshot, and the time as a sign of life. ``reached_at``: address, bind, advertise.
        Raise ``Superseded`` if another one, of a higher term, has taken over."""
        self._check_term(term)
        self._insert("memory", 0, term, time, *reached_at, data)
        self._run("delete from ahead", ())  # the snapshot contains it

    def append(self, term: int, data: bytes) -> None:
        """Keep this entry beside the last snapshot; it is durable after a `flush`. Raise ``Superseded`` as `remember`."""
        self._check_term(term)
        self._run("insert into ahead (data) values (?)", (data,))

    def _check_term(self, term: int) -> None:
        with _storage(self.path):
            row = self._database.execute("select term from memory").fetchone()
        if row is not None and row[0] > term:
            raise Superseded(f"a supervisor of term {row[0]} has taken over; this one is of term {term}")

    def finished(self, time: float, outcome: Outcome) -> None:
        """Keep the outcome."""
        for rank, (measured, statistics) in list(self._waiting.items()):
            self.measured(measured, rank, statistics, final=True)
        text = json.dumps(plain(outcome))
        self._run("update run set ended = ?, outcome = ? where name = ?", (time, text, self.name))
        self.flush()

    def flush(self) -> bool:
        """Write everything so far to disk. Return whether the file had been deleted, and was written again."""
        with _storage(self.path):
            try:
                self._database.commit()
            except sqlite3.Error:
                with suppress(sqlite3.Error):
                    self._database.rollback()  # else the next attempt finds this transaction open
                raise
            deleted = not self.path.exists()
            if deleted:
                self._write_again()
        return deleted

    def _write_again(self) -> None:
        """Copy the contents, which the open connection still has, to a new file. SQLite would apply an old log to it, and
        removes a log by its name when it closes the old file: that comes first."""
        copy = self.path.with_name(FILE + ".part")
        copy.unlink(missing_ok=True)
        with closing(sqlite3.connect(copy)) as target:
            self._database.backup(target)
        self._database.close()
        for log in ("-wal", "-shm"):
            self.path.with_name(FILE + log).unlink(missing_ok=True)
        os.replace(copy, self.path)
        self._database = self._open()

    def close(self) -> None:
        """Flush and close. A full disk loses the last second only, so it is no error here."""
        with suppress(StorageFailed):
            self.flush()
        self._database.close()

    def _insert(self, table: str, *values: object) -> None:
        self._run(schema.insert(table), values)

    def _run(self, statement: str, values: Sequence[object]) -> None:
        with _storage(self.path):
            self._database.execute(statement, values)

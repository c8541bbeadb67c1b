"""Readers of a run's store, also while its supervisor writes: the list of runs, and one run whole."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from taut.core.messages import HostUse, Statistics
from taut.core.printable import Printable
from taut.errors import Misuse
from taut.specs import did_you_mean
from taut.supervisor.storage import schema
from taut.supervisor.storage.store_writer import FIELDS, FILE
from taut.supervisor.view import WorkerRow

ROW = f"rowid as row, time, rank, {', '.join(FIELDS)}"  # of a statistic
StoredState = Literal["running", "interrupted", "finished", "failed", "unreadable"]


class DamagedRun(Misuse):
    """A run whose store cannot be read. ``path`` is the run's folder: its other files may be whole."""

    def __init__(self, path: Path, why: object) -> None:
        self.path = path
        super().__init__(f"run {path.name!r}", "a readable run", f"{path / FILE} is damaged: {why}")


class RunSummary(Struct, frozen=True):
    """One line of ``taut runs``. ``interrupted``: its supervisor ended without an outcome."""

    name: str
    path: Path
    state: StoredState
    started: float  # seconds since 1970
    ended: float | None
    command: str
    workers: int  # admitted in all
    exit_code: int | None
    identical: bool | None
    model: str | None
    error: str
    host: str = ""  # of its supervisor
    wall_s: float | None = None  # as ``Outcome`` has it; None before the end
    total_s: float | None = None
    strategy: str = ""


@dataclass(frozen=True, slots=True)
class WorkerRecord(Printable):
    """A worker in the store; ``gone`` is None for one that stayed to the end."""

    rank: int
    host: str
    pid: int
    joined: float
    gone: float | None
    reason: str
    paused: bool = False


class StatisticRecord(Struct, frozen=True):
    """A worker's statistics at ``time``."""

    time: float
    rank: int
    statistics: Statistics


@dataclass(frozen=True, slots=True)
class EventRecord(Printable):
    """An event in the store."""

    time: float
    kind: str
    text: str


class ProgressRecord(Struct, frozen=True):
    """How far the run was at ``time``; the other fields are those of ``ClusterView``."""

    time: float
    state: str
    workers: int
    epoch: int
    epochs: int
    samples_done: int
    samples_total: int
    samples_trained: int
    samples_left: int
    train_s: float
    consensus: float | None
    rate: float | None = None  # by which the owner multiplies all learning rates
    slack: float | None = None


class StoredRun(Struct, frozen=True):
    """A run. ``outcome`` is ``taut.supervisor.view.Outcome`` as a JSON object, None before the end; ``event_rows``: the
    row number of each event."""

    summary: RunSummary
    settings: dict[str, Any]
    versions: dict[str, str]
    outcome: dict[str, Any] | None
    workers: tuple[WorkerRecord, ...]
    statistics: tuple[StatisticRecord, ...]
    events: tuple[EventRecord, ...]
    event_rows: tuple[int, ...] = ()
    progress: ProgressRecord | None = None  # the last one
    hosts: Mapping[str, HostUse] = {}  # how busy each was last

    def latest(self) -> dict[int, Statistics]:
        """Return the last statistics of each worker."""
        return {record.rank: record.statistics for record in self.statistics}

    def rows(self, latest: Mapping[int, Statistics]) -> list[WorkerRow]:
        """Return the workers as displays have them, with these statistics."""
        ended = (self.outcome or {}).get("workers") or {}
        rows = []
        for each in self.workers:
            last = ended.get(str(each.rank), {})
            state = last.get("state", "gone" if each.gone is not None else "training")
            statistics, refused = latest.get(each.rank, Statistics()), int(last.get("refused") or 0)
            known = (statistics, 0.0, each.reason, refused, bool(each.paused), self.hosts.get(each.host))
            rows.append(WorkerRow(each.rank, each.host, each.pid, state, *known))
        return rows


def list_runs(runs_dir: Path) -> list[RunSummary]:
    """Return all runs under ``runs_dir``, the oldest first; none if there is no such folder."""
    found = sorted(path.parent for path in Path(runs_dir).glob(f"*/{FILE}"))
    return [summary_or_unreadable(path) for path in found]


def load_run(runs_dir: Path, name: str) -> StoredRun:
    """Return the run ``name``; the end of its name will do (``quiet-otter``) if only one run has it."""
    names = [path.parent.name for path in Path(runs_dir).glob(f"*/{FILE}")]
    fitting = [name] if name in names else [one for one in names if name and one.endswith(f"-{name}")]
    if len(fitting) != 1:
        words = [*names, *(one.split("-", 2)[-1] for one in names)]  # these are without the date
        near = f"did you mean {' or '.join(sorted(fitting))}?" if fitting else did_you_mean(name, words)
        raise Misuse(f"run {name!r}", f"one of the {len(names)} runs in {runs_dir}", near or "see `taut runs`")
    path = Path(runs_dir) / fitting[0]
    try:
        with opened(path) as database:
            return read_run(path, database, database.execute(f"select {ROW} from statistic order by time, rowid"))
    except (sqlite3.Error, ValueError) as error:
        raise DamagedRun(path, error) from error


def find_run(runs_dir: str, name: str) -> StoredRun:
    """Return the run of that name; ``latest`` is the newest, the end of a name will do, a near miss is named."""
    if name == "latest":
        known = list_runs(Path(runs_dir))
        if not known:
            raise Misuse("run 'latest'", f"a run in {runs_dir}", "there is none; `taut demo` makes one")
        name = max(known, key=lambda each: each.started).name
    return load_run(Path(runs_dir), name)


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the store of a run for reading. In a folder without write permission no lock files are made: ``immutable``."""
    address = (path / FILE).resolve().as_uri()
    database = sqlite3.connect(f"{address}?mode=ro", uri=True)
    try:
        try:
            database.execute("select count(*) from run")
        except sqlite3.OperationalError:
            database.close()
            database = sqlite3.connect(f"{address}?immutable=1", uri=True)
        schema.adapt(database)
        yield database
    finally:
        database.close()


def summary_or_unreadable(path: Path) -> RunSummary:
    """Return one line about the run in this folder; ``unreadable`` where its store is damaged."""
    try:
        with opened(path) as database:
            return summarised(path, database)
    except (sqlite3.Error, ValueError) as error:
        return _unreadable(path, str(error))


def _unreadable(path: Path, why: str) -> RunSummary:
    return RunSummary(path.name, path, "unreadable", 0.0, None, "", 0, None, None, None, why)


def without_store(path: Path, why: str) -> StoredRun:
    """Return a record of a run whose store is damaged: its folder."""
    return StoredRun(_unreadable(path, why), {}, {}, None, (), (), ())


def set_aside(path: Path) -> Path:
    """Rename the damaged store of the run in ``path``, so that a new one can be begun. Return its new name."""
    aside = path / f"{FILE}.damaged"
    for suffix in ("", "-wal", "-shm"):
        if (path / f"{FILE}{suffix}").exists():
            os.replace(path / f"{FILE}{suffix}", f"{aside}{suffix}")
    return aside


def summarised(path: Path, database: sqlite3.Connection) -> RunSummary:
    row = database.execute("select started, ended, command, outcome, host, pid, settings from run").fetchone()
    if row is None:
        raise ValueError("nothing is recorded of it")
    started, ended, command, text, host, pid, settings = row
    outcome: dict[str, Any] = json.loads(text) if text else {}
    state: StoredState = outcome.get("state") or ("running" if alive(host, pid) else "interrupted")
    return RunSummary(
        name=path.name,
        path=path,
        state=state,
        started=started,
        ended=ended,
        command=command,
        workers=database.execute("select count(*) from worker").fetchone()[0],
        **{name: outcome.get(name) for name in ("exit_code", "identical", "model", "wall_s")},
        error=outcome.get("error", ""),
        host=host,
        strategy=str(json.loads(settings or "{}").get("strategy", "")),
        total_s=outcome.get("total_s", None if ended is None else ended - started),
    )


def read_run(
    path: Path, database: sqlite3.Connection, measured: Iterable[tuple[Any, ...]], after_event: int = 0
) -> StoredRun:
    """Return the run, with the statistics in the rows ``measured`` (columns ``ROW``) and the events after this row."""
    summary = summarised(path, database)  # first: it raises if nothing is recorded yet
    settings, versions, outcome = database.execute("select settings, versions, outcome from run").fetchone()
    workers = database.execute("select rank, host, pid, joined, gone, reason, paused from worker order by rank")
    fields = ", ".join(ProgressRecord.__struct_fields__)
    progress = database.execute(f"select {fields} from progress order by rowid desc limit 1").fetchone()
    later = "select rowid, time, kind, text from event where rowid > ? order by rowid"
    events = database.execute(later, (after_event,)).fetchall()
    use = ", ".join(HostUse.__struct_fields__)
    hosts = database.execute(
        f"select host, {use}, max(rowid) from host group by host"
    )  # the other columns are that row's
    return StoredRun(
        summary=summary,
        settings=json.loads(settings),
        versions=json.loads(versions),
        outcome=json.loads(outcome) if outcome else None,
        workers=tuple(WorkerRecord(*row) for row in workers),
        statistics=tuple(StatisticRecord(row[1], row[2], statistics_of(row[3:])) for row in measured),
        events=tuple(EventRecord(*row[1:]) for row in events),
        event_rows=tuple(row[0] for row in events),
        progress=None if progress is None else ProgressRecord(*progress),
        hosts={host: HostUse(*values) for host, *values, _ in hosts},
    )


def statistics_of(values: Iterable[Any]) -> Statistics:
    """Return statistics from a row. Null, which also stands for "not finite", becomes the field's default."""
    known = {name: value for name, value in zip(FIELDS, values, strict=True) if value is not None}
    if isinstance(late := known.get("late"), str):
        late = [int(count) for count in late.split() if count.isdecimal()]
    known["late"] = tuple(late or ())
    return Statistics(**known)


def alive(host: str, pid: int) -> bool:
    """Return whether the supervisor may still run; one on another machine is believed to."""
    if host != socket.gethostname():
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

"""The sources of the dashboard: a supervisor in this process, or the store of a run that is over or
whose supervisor is in another process. It only ever reads snapshots: nothing waits for it."""

from __future__ import annotations

import sqlite3
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from taut.core.messages import Statistics
from taut.dashboard.history import History, ProgressMark
from taut.dashboard.records import About, EventLine
from taut.dashboard.run_files import files_of
from taut.dashboard.view_model import Seen, event_lines, from_store, from_view, short
from taut.supervisor.control import Order, order
from taut.supervisor.metrics import finite, total
from taut.supervisor.storage.previous_run import read_previous_run
from taut.supervisor.storage.store_follower import MOST_STATISTICS, StoreFollower
from taut.supervisor.storage.store_reader import DamagedRun, StatisticRecord, StoredRun, opened, read_run

if TYPE_CHECKING:
    from taut.supervisor.service import Supervisor

PATIENCE_S = 5.0  # for the supervisor's answer to an order
KEPT_EVENTS = 500


class Source(Protocol):
    """A run that can be looked at. ``look`` is called about once a second, from one thread, and must not take long;
    ``about`` and ``obeyed``, which carries out an order, from other ones, and may. ``run_dir``: the run's folder."""

    def look(self) -> Seen: ...

    def about(self) -> About: ...

    def obeyed(self, given: Order) -> str: ...

    @property
    def run_dir(self) -> Path: ...


class SupervisorSource:
    """The supervisor in this process. The supervisor leaves its view behind as a record ten times a second: reading the
    record takes no lock."""

    def __init__(self, supervisor: Supervisor, secret_for_all: bool) -> None:
        self._supervisor, self._secret_for_all = supervisor, secret_for_all

    def look(self) -> Seen:
        outcome = self._supervisor.wait(0.0)
        return from_view(self._supervisor.view(), self._supervisor.settings, outcome, self._secret_for_all)

    def about(self) -> About:
        return about(self._supervisor.run_dir)

    def obeyed(self, given: Order) -> str:
        return obeyed(self._supervisor.run_dir, given)

    @property
    def run_dir(self) -> Path:
        return self._supervisor.run_dir


class StoreSource:
    """Follows the store of the run in ``run_dir``. ``history``: the run's curves up to now, from the statistics, of which
    ``most`` are read."""

    def __init__(self, run_dir: Path, secret_for_all: bool, most: int = MOST_STATISTICS) -> None:
        self._tail, self._secret_for_all = StoreFollower(run_dir, most), secret_for_all
        self._latest: dict[int, Statistics] = {}
        self._events: deque[EventLine] = deque(maxlen=KEPT_EVENTS)
        self._last_s = 0.0
        self.history = History()
        fresh = self._take()
        for record in fresh.statistics:
            self._replay(record, fresh)
        self._first: StoredRun | None = fresh

    def look(self) -> Seen:
        fresh, self._first = self._first or self._take(), None
        for record in fresh.statistics:
            self._latest[record.rank] = record.statistics
        return from_store(fresh, self._latest, tuple(self._events), self._last_s, self._secret_for_all)

    def about(self) -> About:
        return about(self._tail.run_dir)

    def obeyed(self, given: Order) -> str:
        return obeyed(self._tail.run_dir, given)

    @property
    def run_dir(self) -> Path:
        return self._tail.run_dir

    def _take(self) -> StoredRun:
        fresh = self._tail.read()
        self._events.extend(event_lines(fresh))
        times = [*(record.time for record in fresh.statistics), *(event.time for event in fresh.events)]
        self._last_s = max([self._last_s, *(time - fresh.summary.started for time in times)])
        return fresh

    def _replay(self, record: StatisticRecord, fresh: StoredRun) -> None:
        self._latest[record.rank] = record.statistics
        time_s = record.time - fresh.summary.started
        last = self.history.last
        if last is not None and time_s - last.time_s < self.history.every_s:
            return  # before anything is summed: there are two rows a second for each worker
        there = {
            one.rank: self._latest.get(one.rank, Statistics())
            for one in fresh.workers
            if one.joined <= record.time and (one.gone is None or one.gone > record.time)
        }
        samples = sum(one.samples for one in self._latest.values())
        late = {rank: one.late for rank, one in self._latest.items() if one.late}
        loss = finite(total(there.values()).loss)
        self.history = self.history.grown(ProgressMark(time_s, samples, loss, there, late=late))


def obeyed(run_dir: Path, given: Order) -> str:
    """Give an order as ``taut drain`` does: over the supervisor's own socket, so that there is one way in, with one set
    of checks. Raises ``Misuse`` or ``SupervisorLost`` as there."""
    return order(read_previous_run(run_dir), given, PATIENCE_S).said


def about(run_dir: Path) -> About:
    """Read the settings, versions and files of a run from its folder."""
    try:
        with opened(run_dir) as database:
            stored = read_run(run_dir, database, ())
    except (sqlite3.Error, ValueError) as error:
        raise DamagedRun(run_dir, error) from error
    return About(
        command=short(stored.summary.command),
        settings={name: short(str(value)) for name, value in sorted(stored.settings.items()) if value is not None},
        versions={name: short(str(value)) for name, value in stored.versions.items()},
        folder=str(run_dir),
        files=tuple((name, path.stat().st_size) for name, path in files_of(run_dir).items()),
    )

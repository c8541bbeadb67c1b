"""A run seen through its store: one that is over, or one whose supervisor is in another process."""

from __future__ import annotations

from collections import deque
from pathlib import Path

from taut.core.messages import Statistics
from taut.dashboard.history import History, Mark
from taut.dashboard.sources import dismiss_by_order
from taut.dashboard.view_model import Kept, Seen, from_store
from taut.supervisor.metrics import finite, total
from taut.supervisor.storage.store_follower import Fresh, StoreFollower
from taut.supervisor.storage.store_reader import EventRecord, StatisticRecord

KEPT_EVENTS = 500


class StoreSource:
    """Follows the store of the run in ``run_dir``. ``history``: its curves up to now, from the statistics."""

    def __init__(self, run_dir: Path, secret_for_all: bool) -> None:
        self._tail, self._secret_for_all = StoreFollower(run_dir), secret_for_all
        self._latest: dict[int, Statistics] = {}
        self._events: deque[tuple[int, EventRecord]] = deque(maxlen=KEPT_EVENTS)
        self._last_s = 0.0
        self.history = History()
        fresh = self._take()
        for record in fresh.statistics:
            self._replay(record, fresh)
        self._first: Fresh | None = fresh

    def look(self) -> Seen:
        fresh, self._first = self._first or self._take(), None
        for record in fresh.statistics:
            self._latest[record.rank] = record.statistics
        kept = Kept(
            fresh.summary,
            fresh.settings,
            fresh.workers,
            self._latest,
            tuple(self._events),
            fresh.outcome,
            self._last_s,
        )
        return from_store(kept, self._secret_for_all)

    def dismiss(self, rank: int, reason: str, expel: bool) -> str:
        return dismiss_by_order(self._tail.run_dir, rank, reason, expel)

    def _take(self) -> Fresh:
        fresh = self._tail.read()
        self._events.extend(fresh.events)
        times = [record.time for record in fresh.statistics] + [event.time for _, event in fresh.events]
        self._last_s = max([self._last_s, *(time - fresh.summary.started for time in times)])
        return fresh

    def _replay(self, record: StatisticRecord, fresh: Fresh) -> None:
        self._latest[record.rank] = record.statistics
        time_s = record.time - fresh.summary.started
        last = self.history.last
        if last is not None and time_s - last.time_s < self.history.every_s:
            return  # before anything is summed: there are two rows a second for each worker
        there = [
            one for one in fresh.workers if one.joined <= record.time and (one.gone is None or one.gone > record.time)
        ]
        loss = total(self._latest[one.rank] for one in there if one.rank in self._latest).loss
        samples = sum(one.samples for one in self._latest.values())
        self.history = self.history.grown(Mark(time_s, samples, finite(loss), len(there)))

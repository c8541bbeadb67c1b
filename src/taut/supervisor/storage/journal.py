"""Keeps a run's events in memory for displays, and everything in the store, the supervisor's state before any worker is
told of a change. A disk that fails never stops the run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from taut.errors import StorageFailed
from taut.supervisor.data.lease_wal import pack
from taut.supervisor.run.cluster import Cluster
from taut.supervisor.storage.snapshot import keep, outline
from taut.supervisor.storage.store_writer import StoreWriter
from taut.supervisor.view import Event, Outcome

KEPT_EVENTS = 500
FLUSH_EVERY_S = 1.0
Write = Callable[[StoreWriter, float], None]  # takes the time in seconds since 1970


class Journal:
    """The run's journal. Times are in seconds of the supervisor's clock; ``began_s`` and ``began_at`` (seconds since
    1970) are the same moment. ``store`` is None if the store could not be opened, for the reason ``why``."""

    def __init__(self, store: StoreWriter | None, began_s: float, began_at: float, why: str = "") -> None:
        self.events: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self.broken = store is None
        self._store = store
        self.began_s, self._began_at = began_s, began_at
        self._flushed_s = began_s
        self._count = 0
        if store is None:
            self._warn(began_s, why)

    def record(self, kind: str, text: str, now: float) -> None:
        """Keep an event."""
        self._count += 1
        self.events.append(Event(self._count, now - self.began_s, kind, text))
        self.write(now, lambda store, at: store.event(at, kind, text))

    def superseded(self, text: str, now: float) -> None:
        """Show that another supervisor took over: only in memory, since the store is the other's."""
        self.events.append(Event(0, now - self.began_s, "superseded", text))

    def finished(self, outcome: Outcome, now: float) -> None:
        """Keep the outcome, even after a failure: the disk may have room again."""
        self.broken = self._store is None
        self.write(now, lambda store, at: store.finished(at, outcome))

    def flush(self, now: float, remember: Write | None = None, at_once: bool = False) -> None:
        """Write to disk, once a second, also the supervisor's snapshot, which ``remember`` gives to the store with
        the time. Raise ``Superseded``."""
        if at_once or now - self._flushed_s >= FLUSH_EVERY_S:
            self._flushed_s = now
            if remember is not None:
                self.write(now, remember)
            self._flush(now)

    def append(self, term: int, data: bytes, now: float) -> None:
        """Write an entry beside the last snapshot to disk at once. Raise ``Superseded``."""
        self.write(now, lambda store, at: store.append(term, data))
        self._flush(now)

    def _flush(self, now: float) -> None:
        def flush(store: StoreWriter, at: float) -> None:
            if store.flush():
                self.record("storage", f"{store.path} was deleted: it is written again, and nothing is lost", now)

        self.write(now, flush)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def write(self, now: float, write: Write) -> None:
        """Write to the store, unless it has failed."""
        if self._store is None or self.broken:
            return
        try:
            write(self._store, self._began_at + now - self.began_s)
        except StorageFailed as error:
            self.broken = True
            self._warn(now, str(error))

    def _warn(self, now: float, why: str) -> None:
        self._count += 1
        text = f"statistics are no longer kept: {why}; training goes on"
        self.events.append(Event(self._count, now - self.began_s, "storage", text))


class Persistence(Struct):
    """Writer of a cluster's state. ``reached_at``: the supervisor's address, bind address, and advertised one (or "")."""

    cluster: Cluster
    journal: Journal
    reached_at: tuple[str, str, str]
    outline: tuple[object, ...] = ()  # of the last snapshot

    def now_and_then(self, now: float) -> None:
        """Write a snapshot, once a second. Raise ``Superseded``."""
        self.journal.flush(now, self._kept(now))

    def ahead(self, now: float) -> None:
        """Write the changes of this round: a snapshot if the run's outline changed, else the entries about data.
        Raise ``Superseded``."""
        log, drawn = self.cluster.leases.log, outline(self.cluster)
        if drawn != self.outline:
            self.outline = drawn
            self.journal.flush(now, self._kept(now), at_once=True)
        elif log:
            self.journal.append(self.cluster.term, pack(log), now)
        log.clear()

    def _kept(self, now: float) -> Write:
        def remember(store: StoreWriter, at: float) -> None:
            store.remember(at, self.cluster.term, self.reached_at, keep(self.cluster, now))
            self.cluster.leases.log.clear()

        return remember

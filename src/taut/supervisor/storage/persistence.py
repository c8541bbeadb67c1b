"""Writes the supervisor's state to the store before any worker is told of a change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from taut.supervisor.data.lease_wal import pack
from taut.supervisor.run.cluster import Cluster
from taut.supervisor.storage.journal import Journal
from taut.supervisor.storage.snapshot import keep, outline
from taut.supervisor.storage.store_writer import StoreWriter


@dataclass(slots=True)
class Persistence:
    """Writer of a cluster's state. ``reached_at``: the supervisor's address, bind address, and advertised address (or
    "")."""

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

    def _kept(self, now: float) -> Callable[[StoreWriter, float], None]:
        def remember(store: StoreWriter, at: float) -> None:
            store.remember(at, self.cluster.term, self.reached_at, keep(self.cluster, now))
            self.cluster.leases.log.clear()

        return remember

"""Writes down what the supervisor must not forget, before anybody is told of what follows from it."""

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
    """``reached_at``: the supervisor's address, what it is bound to, and what it advertises (or "")."""

    cluster: Cluster
    journal: Journal
    reached_at: tuple[str, str, str]
    outline: tuple[object, ...] = ()  # of what was remembered last

    def now_and_then(self, now: float) -> None:
        """All of it, once a second. Raises ``Superseded``."""
        self.journal.flush(now, self._kept(now))

    def ahead(self, now: float) -> None:
        """What must be known of what was decided just now: all of it where that changed the run's outline, else what
        concerns the data. Raises ``Superseded``."""
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

"""The residual of a worker that leaves, in the runtime: hand it on, and wait until another worker has taken it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from taut.strategies.delivery.residual_handoff import KINDS, ResidualHandoff
from taut.topologies.shapes.basic import Complete
from taut.worker.exchange.turns import Turn, Wait

if TYPE_CHECKING:
    from taut.core.events import Heard, Tell
    from taut.worker.comm.comm_thread import CommThread


class ResidualHandoffDriver:
    """Drives a ``ResidualHandoff`` on ``comm``, in the phase that the driver is made in. ``take`` adds a part of another
    worker's residual to this worker's, in the thread that hands messages over."""

    def __init__(self, comm: CommThread, take: Callable[[bytes], None]) -> None:
        self.comm, self.phase_protocol = comm, comm.phase_protocol
        self._handoff = ResidualHandoff(take)
        self._lock = threading.Lock()

    def heard(self, item: Heard) -> bool:
        """Return whether this message is one of a handoff, and answer it. Raises ``MalformedMessage``."""
        if item.note.kind not in KINDS:
            return False
        with self._lock:
            self._post(self._handoff.heard(item.sender, item.note, item.payload))
        return True

    def hand_on(self, parts: Iterable[bytes], neighbours: Sequence[int], idle: Callable[[], None]) -> Turn:
        """Wait until another worker has taken all ``parts``, or the run (or this phase of it) is over for all, for then
        what was not sent is dropped everywhere. ``parts`` are made while nothing can be taken over. ``neighbours`` are
        asked first."""
        others = [rank for rank in self._members() if rank != self.comm.rank]
        with self._lock:
            self._post(self._handoff.leave(parts, sorted(others, key=lambda rank: (rank not in neighbours, rank))))

        def look() -> None:
            members = self._members()
            idle()  # after that: what the gone had said is heard then
            with self._lock:
                self._post(self._handoff.members_changed(members))

        def over() -> bool:
            return self._handoff.done or self.comm.status.over(self.phase_protocol.phase)

        yield Wait(over, look, on_supervisor=True)

    def _members(self) -> tuple[int, ...]:
        return (
            self.comm.dispatcher.membership(Complete(), self.phase_protocol.phase).members
            if self.comm.status.roster is not None
            else ()
        )

    def _post(self, tells: Iterable[Tell]) -> None:
        for tell in tells:
            self.comm.post(tell, self.phase_protocol)

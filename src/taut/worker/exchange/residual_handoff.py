"""A worker that leaves hands on what its codec has not sent, and waits until somebody has taken it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from taut.strategies.delivery.residual_handoff import KINDS, ResidualHandoff
from taut.topologies.shapes.basic import Complete

if TYPE_CHECKING:
    from taut.core.events import Heard, Tell
    from taut.worker.comm.comm_thread import CommThread
    from taut.worker.comm.run_status import RunStatus


class ResidualHandoffDriver:
    """Drives an ``ResidualHandoff`` on ``node``, in the phase that this is made in. ``take`` makes a part of what another
    worker left one's own, in the thread that hands messages over."""

    def __init__(self, node: CommThread, take: Callable[[bytes], None]) -> None:
        self.node, self.stage = node, node.stage
        self._inheritance = ResidualHandoff(take)
        self._lock = threading.Lock()

    def heard(self, item: Heard) -> bool:
        """Whether this message is of an inheritance. Raises ``MalformedMessage``."""
        if item.note.kind not in KINDS:
            return False
        with self._lock:
            self._post(self._inheritance.heard(item.sender, item.note, item.payload))
        return True

    def hand_on(self, parts: Iterable[bytes], neighbours: Sequence[int], idle: Callable[[], None]) -> None:
        """Returns when somebody has taken all ``parts``, or the run (or this phase of it) is over for all, for then what
        was not sent is dropped everywhere. They are made while nothing can be inherited. ``neighbours`` come first."""
        others = [rank for rank in self._members() if rank != self.node.rank]
        with self._lock:
            self._post(self._inheritance.leave(parts, sorted(others, key=lambda rank: (rank not in neighbours, rank))))

        def look() -> None:
            members = self._members()
            idle()  # after that: what the gone had said is heard then
            with self._lock:
                self._post(self._inheritance.placed(members))

        def over(facts: RunStatus) -> bool:
            return self._inheritance.done or facts.over(self.stage.phase)

        self.node.wait(over, look)

    def _members(self) -> tuple[int, ...]:
        return self.node.place(Complete(), self.stage.phase).members if self.node.facts.roster is not None else ()

    def _post(self, tells: Iterable[Tell]) -> None:
        for tell in tells:
            self.node.post(tell, self.stage)

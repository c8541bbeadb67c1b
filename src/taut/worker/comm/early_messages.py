"""Messages of a phase that this worker has not come to yet: they wait here until it does."""

from __future__ import annotations

from collections import deque

from taut.errors import MalformedMessage
from taut.transport.framing import nbytes
from taut.worker.comm.phase_protocol import Tagged

MOST = 4096

Waiting = tuple[int, Tagged, list[bytes]]


class EarlyMessages:
    """What does not fit into ``limit_nbytes``, or is one too many, is let fall: it is sent again."""

    def __init__(self, limit_nbytes: int) -> None:
        self._limit_nbytes = limit_nbytes
        self._waiting: deque[Waiting] = deque()
        self._nbytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def keep(self, sender: int, message: Tagged, payloads: list[bytes], phase: int) -> None:
        """``phase``: the present one. Nobody is more than one ahead of it."""
        if message.phase > phase + 1:
            raise MalformedMessage(f"a message of phase {message.phase}, in phase {phase}")
        if len(self._waiting) < MOST and self._nbytes < self._limit_nbytes:
            self._nbytes += nbytes(payloads)
            self._waiting.append((sender, message, payloads))

    def take(self) -> list[Waiting]:
        """All, in order: their phase has come."""
        taken, self._waiting, self._nbytes = list(self._waiting), deque(), 0
        return taken

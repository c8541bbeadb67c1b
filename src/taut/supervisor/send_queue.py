"""Messages to workers that cannot be sent now (a connection is being made anew) wait here, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from taut.core.messages import Pulse, Refusal, SupervisorMessage
from taut.transport.framing import encode
from taut.transport.transport import ServerSocket

MOST_WAITING = 1_000  # to one worker; one that takes none of so many is being evicted anyway


class SendQueue:
    """Sends over ``socket``; refused messages are tried again by `retry`, and no later message overtakes them."""

    def __init__(self, socket: ServerSocket) -> None:
        self._socket = socket
        self._waiting: dict[bytes, deque[list[bytes]]] = {}
        self._last: tuple[SupervisorMessage, list[bytes]] | None = None  # a message to many workers is encoded once

    def send(self, connection: bytes, message: SupervisorMessage, payloads: Sequence[bytes]) -> bool:
        """Send a message now, or return False: then it waits, unless it is useless later."""
        frames = self._encoded(message, payloads)
        waiting = self._waiting.get(connection)
        if not waiting and self._socket.send(connection, frames):
            return True
        if not isinstance(message, Pulse | Refusal):
            queue = self._waiting.setdefault(connection, deque(maxlen=MOST_WAITING))
            queue.append(frames)
        return False

    def _encoded(self, message: SupervisorMessage, payloads: Sequence[bytes]) -> list[bytes]:
        if payloads:
            return encode(message, payloads)
        if self._last is None or self._last[0] is not message:
            self._last = (message, encode(message, payloads))
        return self._last[1]

    def retry(self, reachable: Callable[[bytes], bool]) -> None:
        """Send waiting messages, as far as possible. Drop those for connections that are not ``reachable``."""
        for connection, queue in list(self._waiting.items()):
            if not reachable(connection):
                queue.clear()
            while queue and self._socket.send(connection, queue[0]):
                queue.popleft()
            if not queue:
                del self._waiting[connection]

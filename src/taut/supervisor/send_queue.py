"""Messages to workers that cannot be sent just now (a connection that is being made anew) wait here, in
order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from taut.core.messages import Pulse, Refusal, SupervisorMessage
from taut.transport.framing import encode
from taut.transport.transport import ServerSocket

MOST_WAITING = 1_000  # of one worker; one that takes none of so many is being given up anyway


class SendQueue:
    """Sends over ``socket``; what is refused is tried again by `retry`, and nothing overtakes it."""

    def __init__(self, socket: ServerSocket) -> None:
        self._socket = socket
        self._waiting: dict[bytes, deque[list[bytes]]] = {}
        self._last: tuple[SupervisorMessage, list[bytes]] | None = None  # what many are told is written down once

    def send(self, connection: bytes, message: SupervisorMessage, payloads: Sequence[bytes]) -> bool:
        """False: not now. The message waits, unless it is of no use later."""
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
        """Send what waits, as far as it goes. What waits for somebody who is not ``reachable`` is dropped."""
        for connection, queue in list(self._waiting.items()):
            if not reachable(connection):
                queue.clear()
            while queue and self._socket.send(connection, queue[0]):
                queue.popleft()
            if not queue:
                del self._waiting[connection]

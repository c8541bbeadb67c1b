"""What waits for one neighbour: updates go in order, a few messages at a time, and are added up only when they are many.

The neighbour says how many messages it has *seen*. Beyond ``MOST_UNSEEN`` nothing more is sent to it, so that a slow
neighbour is not flooded; what waits goes as one message, update by update, and becomes one update beyond ``BUDGET``.
"""

from __future__ import annotations

from taut.codecs.wire.merge import merge
from taut.errors import MalformedMessage
from taut.strategies.delivery.payload_batch import bind

MOST_UNSEEN = 4
BUDGET_NBYTES = 16 << 20


class Outbox:
    """``sent`` and ``seen`` count messages.

    >>> from taut.strategies.delivery.payload_batch import unbind
    >>> outbox, messages = Outbox(), []
    >>> for update in b"abcdefg":
    ...     outbox.put(bytes([update])); messages.append(outbox.take())
    >>> [unbind(message) for message in messages if message], outbox.take() is None
    ([[b'a'], [b'b'], [b'c'], [b'd']], True)
    >>> outbox.note_seen(3); unbind(outbox.take())
    [b'e', b'f', b'g']
    """

    def __init__(self) -> None:
        self.sent = self.seen = 0
        self._waiting: list[bytes] = []
        self._nbytes = self._merged_nbytes = 0

    def put(self, update: bytes) -> None:
        """Add an update to those that wait."""
        self._waiting.append(update)
        self._nbytes += len(update)
        if self._nbytes > max(BUDGET_NBYTES, 2 * self._merged_nbytes) and len(self._waiting) > 1:
            self._waiting = [merge(self._waiting)]
            self._nbytes = self._merged_nbytes = len(self._waiting[0])

    def take(self, last: bool = False) -> bytes | None:
        """Return the message to send now, if there is one. ``last``: it may not wait, since nothing comes after it."""
        if not self._waiting or (self.sent - self.seen >= MOST_UNSEEN and not last):
            return None
        message = bind(self._waiting)
        self._waiting, self._nbytes, self._merged_nbytes = [], 0, 0
        self.sent += 1
        return message

    def note_seen(self, count: int) -> None:
        """Note that the neighbour has seen ``count`` messages."""
        if count > self.sent:
            raise MalformedMessage(f"{count} messages were seen, of {self.sent}")
        self.seen = max(self.seen, count)

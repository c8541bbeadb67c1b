"""A few messages at most under way to each neighbour, for those who never wait; what comes beyond becomes one.

Receivers say now and then how many they have *seen*. To one that is silent, or much slower, updates wait and are added
up, and of weights only the newest wait: so what is kept for it is a few messages, however long that lasts, and what it
gets when it is heard again is a merged catch-up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from taut.errors import MalformedMessage
from taut.strategies.api import Note, Tell
from taut.strategies.delivery.payload_batch import PayloadBatch

MOST_UNSEEN = 4
SEEN = "seen"
SEEN_EVERY = 2  # messages; MOST_UNSEEN at most, or everybody would wait


@dataclass
class FlowWindow:
    """To one neighbour: how many were sent and seen, and what waits."""

    updates: PayloadBatch
    weights: bytes | None = None
    sent: int = 0
    seen: int = 0


@dataclass
class FlowControl:
    """One worker's. ``merge`` adds updates up; ``limit_nbytes``: what waits may grow to that before it is.

    >>> flow = FlowControl(merge=b"".join, limit_nbytes=100)
    >>> sum(len(flow.update(1, b"u")) for _ in range(10)), len(flow.seen(1, 2)), flow.merged
    (4, 1, 6)
    """

    merge: Callable[[Sequence[bytes]], bytes]
    limit_nbytes: int
    merged: int = 0  # updates that did not go for themselves
    _to: dict[int, FlowWindow] = field(default_factory=dict)
    _from: Counter[int] = field(default_factory=Counter)

    def update(self, to: int, payload: bytes) -> list[Tell]:
        window = self._window(to)
        if window.sent - window.seen < MOST_UNSEEN and not window.updates:
            return [self._tell(to, window, "update", payload)]
        window.updates.put(payload, 1)
        self.merged += 1
        return []

    def weights(self, to: int, payload: bytes) -> list[Tell]:
        window = self._window(to)
        if window.sent - window.seen < MOST_UNSEEN:
            return [self._tell(to, window, "weights", payload)]
        window.weights = payload
        return []

    def seen(self, sender: int, count: int) -> list[Tell]:
        """Take note that ``sender`` has seen ``count`` messages: some of what waits may go."""
        window = self._window(sender)
        if count > window.sent:
            raise MalformedMessage(f"worker {sender} has seen {count} messages, of {window.sent}")
        window.seen = max(window.seen, count)
        return self._release(sender, window) if window.sent - window.seen < MOST_UNSEEN else []

    def flush(self) -> list[Tell]:
        """Return all that waits, now: nothing comes after it."""
        return [tell for to, window in self._to.items() for tell in self._release(to, window)]

    def came(self, sender: int) -> list[Tell]:
        """Count a neighbour's message; return what to tell the neighbour, if anything."""
        self._from[sender] += 1
        seen = self._from[sender]
        return [] if seen % SEEN_EVERY else [Tell(sender, Note(SEEN, seen))]

    def keep(self, members: Collection[int]) -> None:
        self._to = {to: window for to, window in self._to.items() if to in members}

    def _window(self, to: int) -> FlowWindow:
        if to not in self._to:
            self._to[to] = FlowWindow(PayloadBatch(self.merge, self.limit_nbytes))
        return self._to[to]

    def _release(self, to: int, window: FlowWindow) -> list[Tell]:
        """Return what waits, in two messages at most."""
        tells: list[Tell] = []
        if window.updates:
            payloads = window.updates.payloads
            merged = payloads[0] if len(payloads) == 1 else self.merge(payloads)
            window.updates.clear()
            tells.append(self._tell(to, window, "update", merged))
        if window.weights is not None:
            tells.append(self._tell(to, window, "weights", window.weights))
            window.weights = None
        return tells

    def _tell(self, to: int, window: FlowWindow, kind: str, payload: bytes) -> Tell:
        window.sent += 1
        return Tell(to, Note(kind), payload)

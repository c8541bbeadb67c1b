"""One origin's updates, in order, until no worker can need them any more.

Back-pressure merges queued updates into one: updates add. But when an origin has died, a worker that holds part of its
stream must be able to send the rest to a worker that holds less. So the boundary between two updates may vanish only
where no worker's received updates can end. This is the one rule of ``Log.compact``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from taut.errors import MalformedMessage

Merge = Callable[[Sequence[bytes]], bytes]


@dataclass(slots=True)
class Entry:
    """Updates ``lo..hi`` as one payload."""

    lo: int
    hi: int
    payload: bytes


@dataclass(slots=True)
class Log:
    """Entries with consecutive ranges; ``floor`` is the last update that is no longer held.

    >>> log = Log()
    >>> log.append(1, 1, b"a"); log.append(2, 3, b"bc")
    >>> [e.lo for e in log.after(1)], log.head, log.nbytes
    ([2], 3, 3)
    >>> log.prune(1); log.floor
    1
    """

    floor: int = 0
    head: int = 0
    nbytes: int = 0
    compacted_nbytes: int = 0  # after the last compaction
    entries: list[Entry] = field(default_factory=list)

    def append(self, lo: int, hi: int, payload: bytes) -> None:
        assert lo == self.head + 1 and hi >= lo, (lo, hi, self.head)
        self.entries.append(Entry(lo, hi, payload))
        self.head = hi
        self.nbytes += len(payload)

    def after(self, position: int) -> Iterator[Entry]:
        """Yield the entries beyond ``position``, which must be a boundary that is still held."""
        assert position >= self.floor, (position, self.floor)
        start = self._first(position + 1)
        assert start in (0, len(self.entries)) or self.entries[start - 1].hi <= position, (
            f"{position} is inside a merged update {self.entries[start - 1].lo}..{self.entries[start - 1].hi}"
        )
        for index in range(start, len(self.entries)):
            yield self.entries[index]

    def boundary(self, position: int) -> bool:
        """Return whether an update that is still held, or the last one that is not, ends at ``position``."""
        if position in (self.floor, self.head):
            return True
        return self.floor < position < self.head and any(entry.hi == position for entry in self.entries)

    def prune(self, position: int) -> None:
        """Drop the entries up to ``position``."""
        keep = 0
        while keep < len(self.entries) and self.entries[keep].hi <= position:
            self.floor = self.entries[keep].hi
            self.nbytes -= len(self.entries[keep].payload)
            keep += 1
        del self.entries[:keep]

    def skip(self, position: int) -> None:
        """Start at ``position``: earlier updates are in a state that was taken over whole."""
        self.entries.clear()
        self.floor = self.head = position
        self.nbytes = 0

    def compact(self, needed: Callable[[int], bool], merge: Merge, limit_nbytes: int) -> None:
        """Merge adjacent entries unless some worker may have received exactly up to the boundary between them
        (``needed``), as long as a merged payload stays within ``limit_nbytes``."""
        merged: list[Entry] = []
        run: list[Entry] = []
        for entry in self.entries:
            if run and needed(run[-1].hi):
                merged += _united(run, merge, limit_nbytes)
                run = []
            run.append(entry)
        self.entries = merged + _united(run, merge, limit_nbytes)
        self.nbytes = self.compacted_nbytes = sum(len(entry.payload) for entry in self.entries)

    def unite(self, lo: int, hi: int, merge: Merge, limit_nbytes: int) -> None:
        """Replace updates ``lo..hi`` by one entry, if they are several whole entries now."""
        start, stop = self._first(lo), self._first(hi + 1)
        run = self.entries[start:stop]
        if len(run) > 1 and run[0].lo == lo and run[-1].hi == hi:
            payload = merged(run, merge, limit_nbytes)
            if payload is not None:
                self.entries[start:stop] = [Entry(lo, hi, payload)]
                self.nbytes += len(payload) - sum(len(entry.payload) for entry in run)

    def _first(self, position: int) -> int:
        """Return the index of the first entry that begins at ``position`` or later."""
        return bisect_left(self.entries, position, key=lambda entry: entry.lo)


def merged(run: Sequence[Entry], merge: Merge, limit_nbytes: int) -> bytes | None:
    """Return the updates of ``run`` as one payload; None if it would be too long or one of them cannot be merged."""
    try:
        payloads = [entry.payload for entry in run if entry.payload]  # an empty one was refused
        payload = merge(payloads) if payloads else b""
    except MalformedMessage:
        return None
    return payload if len(payload) <= limit_nbytes else None


def _united(run: list[Entry], merge: Merge, limit_nbytes: int) -> list[Entry]:
    """Return the entries merged into one, or into as few as stay within the limit."""
    if len(run) < 2:
        return run
    payload = merged(run, merge, limit_nbytes)
    if payload is not None:
        return [Entry(run[0].lo, run[-1].hi, payload)]
    half = len(run) // 2
    return _united(run[:half], merge, limit_nbytes) + _united(run[half:], merge, limit_nbytes)

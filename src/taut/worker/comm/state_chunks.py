"""Handing a state from a donor to a joiner, in chunks that the joiner asks for one by one. Pure: time is a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from taut.core.messages import StateChunk, StateRequest

CHUNK_NBYTES = 4 << 20
# Before asking again, doubled each time up to the longest: a donor that was cut off is asked soon after it is back. An
# answered request starts anew.
PATIENCE_S, LONGEST_S = 1.0, 16.0


@dataclass
class Donation:
    """The donor's side: who waits for a snapshot, and the snapshots that are being read."""

    waiting: set[int] = field(default_factory=set)
    granted: dict[int, tuple[bytes, dict[int, int]]] = field(default_factory=dict)

    def request(self, sender: int, message: StateRequest) -> tuple[StateChunk, bytes] | None:
        """The chunk asked for; None if there must be a snapshot first (``waiting`` says so)."""
        if sender not in self.granted:
            if message.offset == 0:
                self.waiting.add(sender)
            return None
        data, have = self.granted[sender]
        if message.offset > len(data):
            return None
        return StateChunk(message.offset, len(data), have), data[message.offset : message.offset + CHUNK_NBYTES]

    def grant(self, data: bytes, have: dict[int, int]) -> list[tuple[int, StateChunk, bytes]]:
        """A snapshot was made: everybody who waited gets it, beginning with the first chunk."""
        ready = sorted(self.waiting)
        self.waiting.clear()
        for rank in ready:
            self.granted[rank] = (data, have)
        return [(rank, StateChunk(0, len(data), have), data[:CHUNK_NBYTES]) for rank in ready]

    def forget(self, rank: int) -> None:
        """It has the state, or is gone."""
        self.waiting.discard(rank)
        self.granted.pop(rank, None)


@dataclass
class Fetch:
    """The joiner's side."""

    donor: int
    limit_nbytes: int
    buffer: bytearray = field(default_factory=bytearray)
    offset: int = 0
    total: int | None = None
    have: dict[int, int] = field(default_factory=dict)
    asked_s: float = float("-inf")
    patience_s: float = PATIENCE_S

    @property
    def complete(self) -> bool:
        return self.total is not None and self.offset == self.total

    def due(self, now: float) -> StateRequest | None:
        """The request to send now, if one is due."""
        if self.complete or now - self.asked_s < self.patience_s:
            return None
        if self.asked_s > float("-inf"):
            self.patience_s = min(LONGEST_S, 2 * self.patience_s)
        self.asked_s = now
        return StateRequest(self.offset)

    def arrived(self, sender: int, message: StateChunk, payloads: Sequence[bytes]) -> None:
        """A chunk came. What does not fit is left alone: it will be asked for again."""
        if sender != self.donor or message.offset != self.offset or message.total > self.limit_nbytes:
            return
        if self.total is not None and (message.total != self.total or message.have != self.have):
            self.buffer, self.offset, self.total = bytearray(), 0, None  # the donor made a new snapshot
            return
        if self.offset + len(payloads[0]) > message.total:
            return
        if self.total is None:
            self.buffer = bytearray(message.total)  # the state's one place in memory
        self.total, self.have = message.total, message.have
        self.buffer[self.offset : self.offset + len(payloads[0])] = payloads[0]
        self.offset += len(payloads[0])
        self.asked_s, self.patience_s = float("-inf"), PATIENCE_S

    def data(self) -> memoryview:
        return memoryview(self.buffer)

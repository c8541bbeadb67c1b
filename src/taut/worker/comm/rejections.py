"""What a worker has refused of others: counted per sender, told to the supervisor with every heartbeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from taut.core.messages import Complaint, Dispute

MOST_DISPUTES = 64
MOST_TOLD = 16  # of the worst: a heartbeat stays small


@dataclass
class Rejections:
    """Counts since this worker came. From any thread: of two that write at once one count may be lost, and no more.

    >>> rejections = Rejections()
    >>> for _ in range(3):
    ...     rejections.add(2, "word for element 9 of a range of 8")
    >>> rejections.complaints({})
    [Complaint(rank=2, refused=3, excess=0, why='word for element 9 of a range of 8')]
    """

    counts: Counter[int] = field(default_factory=Counter)
    why: dict[int, str] = field(default_factory=dict)
    disputes: list[Dispute] = field(default_factory=list)  # the latest

    def add(self, sender: int, why: str) -> None:
        """Count a message of ``sender`` that was refused."""
        self.counts[sender] += 1
        self.why[sender] = why[:256]

    def dispute(self, origin: int, other: int) -> None:
        """Note that worker ``other`` holds other updates of ``origin`` than this one."""
        self.disputes.append(Dispute(origin, other))
        del self.disputes[:-MOST_DISPUTES]

    def complaints(self, excess: Mapping[int, int]) -> list[Complaint]:
        """Return the complaints about the worst senders. ``excess``: messages per sender that the transport dropped
        unread, as too many."""
        blamed = [rank for rank in {*self.counts, *excess} if rank >= 0]  # the supervisor cannot expel itself
        blamed.sort(key=lambda rank: (-self.counts[rank] - excess.get(rank, 0), rank))
        return [
            Complaint(rank, self.counts[rank], excess.get(rank, 0), self.why.get(rank, "")) for rank in blamed[:MOST_TOLD]
        ]

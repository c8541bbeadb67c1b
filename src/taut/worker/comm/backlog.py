"""What has come of each worker and still waits for the training thread. Beyond a limit nothing more is taken from it.

A message that is let fall so was not received: its sender keeps it, and sends it again. So a sender that keeps to its
window never meets the limit, one that is much faster than this worker is slowed down, and one that floods it cannot use
up its memory.
"""

from __future__ import annotations

from collections import Counter

OVERHEAD_NBYTES = 512  # of a message that waits, beside its payload


class Backlog:
    """``came`` is called by the thread that communicates, ``taken`` by the one that trains: no count has two writers.

    >>> backlog = Backlog(limit_nbytes=2000)
    >>> backlog.came(1, 1500); backlog.full(1), backlog.full(2)
    (True, False)
    >>> backlog.taken(1, 1500); backlog.full(1)
    False
    """

    def __init__(self, limit_nbytes: int) -> None:
        self.limit_nbytes = limit_nbytes
        self._came: Counter[int] = Counter()
        self._taken: Counter[int] = Counter()

    def came(self, sender: int, nbytes: int) -> None:
        self._came[sender] += nbytes + OVERHEAD_NBYTES

    def taken(self, sender: int, nbytes: int) -> None:
        self._taken[sender] += nbytes + OVERHEAD_NBYTES

    def full(self, sender: int) -> bool:
        """Whether so much of this sender waits that no more can be taken."""
        return self._came[sender] - self._taken[sender] > self.limit_nbytes

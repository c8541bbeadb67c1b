"""How much of a bulk transfer may be under way, so that a heartbeat behind it is not late. Pure: time is a number.

The receiver says how far it is. A part that took less than ``SHORT_S`` from sending to that word doubles the window; one
that took more than ``LONG_S`` halves it; parts that were sent before the last change do not count. A window larger than
what a token bucket lets through at once becomes four times as large where a part was quick by far. So a heartbeat waits
for about ``LONG_S`` at most, well under the silence after which a worker is given up, and a fast link carries
``MOST_NBYTES`` at a time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

SHORT_S, LONG_S = 0.25, 0.75
LEAST_NBYTES, FIRST_NBYTES, MOST_NBYTES = 4 << 10, 32 << 10, 64 << 20
PARTS = 4  # in one window
QUICK_S, QUICK_NBYTES = SHORT_S / 8, 128 << 10


@dataclass
class Window:
    """The side that decides what is under way: a sender, or one who asks. ``most_nbytes``: of one part; ``limit_nbytes``:
    of all parts under way.

    >>> window = Window(1 << 20)
    >>> window.sent(8192, now=0.0); window.seen(8192, now=0.01); window.nbytes
    65536
    """

    most_nbytes: int
    limit_nbytes: int = MOST_NBYTES
    nbytes: int = FIRST_NBYTES
    offset: int = 0  # sent so far
    done: int = 0  # of it, the receiver has
    _changed: int = 0  # what had been sent when the window last changed
    _under_way: deque[tuple[int, float]] = field(default_factory=deque)  # end of each part, and when it was sent

    @property
    def part_nbytes(self) -> int:
        """Return the size of the next part."""
        return max(1, min(self.most_nbytes, self.nbytes // PARTS))

    @property
    def room(self) -> bool:
        """Return whether the next part may be sent now."""
        return self.offset + self.part_nbytes <= self.done + self.nbytes or self.offset == self.done

    def sent(self, nbytes: int, now: float) -> None:
        """Note that a part of ``nbytes`` was sent."""
        self.offset += nbytes
        self._under_way.append((self.offset, now))

    def seen(self, done: int, now: float) -> None:
        """Note that the receiver has everything up to ``done``."""
        self.done = max(self.done, min(done, self.offset))
        while self._under_way and self._under_way[0][0] <= self.done:
            end, sent_s = self._under_way.popleft()
            if end <= self._changed or SHORT_S <= now - sent_s <= LONG_S:
                continue
            larger = 4 if now - sent_s < QUICK_S and self.nbytes >= QUICK_NBYTES else 2
            wanted = larger * self.nbytes if now - sent_s < SHORT_S else self.nbytes // 2
            self.nbytes, self._changed = max(LEAST_NBYTES, min(self.limit_nbytes, wanted)), self.offset

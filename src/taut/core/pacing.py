"""How much of a bulk transfer may be under way, so that a heartbeat behind it is not late. Pure: time is a number.

The receiver says how far it is. A part waited for as long as it took from sending to that word, less what the quickest
part took. One that filled the window and waited less than ``SHORT_S`` doubles it; one that waited more than ``LONG_S``
makes it smaller, and from then on it changes in steps of a quarter. Parts that were sent before the last change do not
count. Where a smaller window makes the wait no shorter, the wait is the receiver's, and is taken off too. A window larger
than what a token bucket lets through at once becomes four times as large where a part was quick by far.

So a heartbeat waits for about ``LONG_S`` at most, well under the silence after which a worker is given up, a fast link
carries ``MOST_NBYTES`` at a time, and a far one is used as well: the way there and back is no wait. What is under way
fits into a router's queue, which may hold no more than 0.4 s: where that drops the end of a window nothing comes after
it, and TCP notices by its timer alone.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace

SHORT_S, LONG_S = 0.1, 0.3
LEAST_NBYTES, FIRST_NBYTES, MOST_NBYTES = 4 << 10, 32 << 10, 64 << 20
PARTS = 4  # in one window
QUICK_S, QUICK_NBYTES = 0.03, 128 << 10
STEP = 1.25


@dataclass
class Window:
    """The side that decides what is under way: a sender, or one who asks. ``most_nbytes``: of one part; ``limit_nbytes``:
    of all parts under way.

    >>> window = Window(1 << 20)
    >>> for _ in range(PARTS): window.sent(8192, now=0.0)
    >>> window.seen(32768, now=0.01); window.nbytes
    65536
    """

    most_nbytes: int
    limit_nbytes: int = MOST_NBYTES
    nbytes: int = FIRST_NBYTES
    offset: int = 0  # sent so far
    done: int = 0  # of it, the receiver has
    least_s: float = math.inf  # that a part took
    _long_s: float = 0.0  # that a part waited, where the window became smaller for that
    _found: bool = False  # how large is too large: from then on, small steps
    _changed: int = 0  # what had been sent when the window last changed
    # the end of each part, when it was sent, and whether it filled the window
    _under_way: deque[tuple[int, float, bool]] = field(default_factory=deque)

    @property
    def part_nbytes(self) -> int:
        """Return the size of the next part."""
        return max(1, min(self.most_nbytes, self.nbytes // PARTS))

    @property
    def room(self) -> bool:
        """Return whether the next part may be sent now."""
        return self.offset + self.part_nbytes <= self.done + self.nbytes or self.offset == self.done

    def resumed(self, offset: int) -> Window:
        """Return a window of this one's pace for what comes after ``offset``. Nothing is under way."""
        return replace(self, offset=offset, done=offset, _changed=offset, _under_way=deque())

    def sent(self, nbytes: int, now: float) -> None:
        """Note that a part of ``nbytes`` was sent."""
        self.offset += nbytes
        self._under_way.append((self.offset, now, not self.room))

    def seen(self, done: int, now: float) -> None:
        """Note that the receiver has everything up to ``done``."""
        self.done = max(self.done, min(done, self.offset))
        while self._under_way and self._under_way[0][0] <= self.done:
            end, sent_s, full = self._under_way.popleft()
            self.least_s = min(self.least_s, now - sent_s)
            waited_s = now - sent_s - self.least_s
            if end <= self._changed or SHORT_S <= waited_s <= LONG_S or (waited_s < SHORT_S and not full):
                continue
            if waited_s > 0.9 * self._long_s > 0:  # after the window became smaller: what was waited for is not its end
                self.least_s, self._long_s, self._changed = now - sent_s, 0.0, self.offset
                continue
            self._long_s = waited_s if waited_s > LONG_S else 0.0
            if waited_s > LONG_S:
                wanted, self._found = self.nbytes / (2 if waited_s > 2 * LONG_S else STEP), True
            elif now - sent_s < QUICK_S and self.nbytes >= QUICK_NBYTES:
                wanted = 4.0 * self.nbytes
            else:
                wanted = self.nbytes * (STEP if self._found else 2)
            self.nbytes, self._changed = max(LEAST_NBYTES, min(self.limit_nbytes, int(wanted))), self.offset

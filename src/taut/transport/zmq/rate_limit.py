"""How many small messages a peer may send: what is beyond is dropped unread, and counted.

    level  <-  min(burst, level + rate * time + credit)        a message passes while level >= 1, and takes 1

What is normal is known from what the receiver says itself: a conversation has two sides, so that each message to a peer
gives that peer credit for several. Only small messages count: large ones are bounded by windows and by the network, small
ones by nothing but the time that the receiver has. Losing one does no harm that losing a connection would not: what
matters is sent again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

SMALL_NBYTES = 4096
MOST_BUCKETS = 4096

Who = TypeVar("Who", bound=Hashable)


class RateLimit(Generic[Who]):
    """``rate_per_s`` and ``burst`` are for each sender by itself. ``excess``: what was dropped, per sender.

    >>> pace = RateLimit[int](rate_per_s=10.0, burst=2)
    >>> [pace.admits(7, now) for now in (0.0, 0.0, 0.0, 0.1)], pace.excess[7]
    ([True, True, False, True], 1)
    """

    def __init__(self, rate_per_s: float, burst: int) -> None:
        self.rate_per_s, self.burst = rate_per_s, burst
        self.excess: Counter[Who] = Counter()
        self._levels: dict[Who, tuple[float, float]] = {}  # sender -> level, and when that was

    def admits(self, who: Who, now: float) -> bool:
        """Whether a small message of ``who`` may pass."""
        known = self._levels.get(who)
        if known is None:
            self._make_room(now)
            level = float(self.burst)
        else:
            level = min(self.burst, known[0] + (now - known[1]) * self.rate_per_s)
        passes = level >= 1.0
        self._levels[who] = (level - 1.0 if passes else level, now)
        if not passes:
            self.excess[who] += 1
        return passes

    def credit(self, who: Who, messages: float) -> None:
        """Let ``who`` send so many more, as it was sent something; none can save up more than ``burst``."""
        known = self._levels.get(who)
        if known is not None:  # else its level is full
            self._levels[who] = (known[0] + messages, known[1])

    def forget(self, who: Who) -> None:
        self._levels.pop(who, None)
        self.excess.pop(who, None)

    def _make_room(self, now: float) -> None:
        """Forget quiet senders, which are as good as new: anyone can make up senders where those are connections."""
        if len(self._levels) < MOST_BUCKETS:
            return
        quiet_s = self.burst / self.rate_per_s
        self._levels = {who: kept for who, kept in self._levels.items() if now - kept[1] < quiet_s and who in self.excess}
        if len(self._levels) >= MOST_BUCKETS // 2:
            self._levels.clear()
            self.excess.clear()

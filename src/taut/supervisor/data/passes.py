"""One pass over the data: how far it is dealt, and in what chunks it is."""

from __future__ import annotations

from dataclasses import dataclass

MOST_BATCHES = 64  # of one lease: bounds what a death makes uncertain


@dataclass(slots=True)
class Pass:
    """One epoch: its length, the first place not dealt yet, and how many places were reported as trained. ``end``: what
    is not dealt ends here, the rest was set aside (-1: nothing was). ``begun``: somebody has or had a lease of it."""

    length: int
    dealt: int = 0
    done: int = 0
    end: int = -1
    begun: bool = False

    def __post_init__(self) -> None:
        self.end = self.length if self.end < 0 else self.end

    @property
    def left(self) -> int:
        return self.end - self.dealt


def chunk(left: int, batch: int, live_workers: int, least: int = 1, after: int = 0) -> int:
    """How many places to deal: about left / (4 p), in whole batches, from 1 to 64 of them, never more than
    are left. ``least`` batches if that is more, since steps may be so short that small leases would be waited
    for; but no more than left / p, or a quarter of a worker's share of all that is left where ``after`` places of
    later passes follow: nobody waits at the end of this one then, but everybody at the end of the last.

    >>> [chunk(left, batch=10, live_workers=2) for left in (1000, 25, 3)]
    [120, 10, 3]
    >>> [chunk(left, batch=10, live_workers=2, least=30) for left in (1000, 100, 25)]
    [300, 50, 10]
    >>> [chunk(100, batch=10, live_workers=2, least=30, after=after) for after in (300, 10_000)]
    [50, 100]
    """
    share, of_all = (places // (max(1, live_workers) * batch) for places in (left, left + after))
    batches = max(share // 4, min(least, max(share, of_all // 4)))
    return min(left, batch * min(MOST_BATCHES, max(1, batches)))

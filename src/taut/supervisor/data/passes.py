"""One pass over the data: how much of it is leased, and the size of the next lease."""

from __future__ import annotations

from msgspec import Struct

MOST_BATCHES = 64  # of one lease: bounds the samples that a death makes uncertain


class Pass(Struct, array_like=True):
    """One epoch: its length, the first index not leased yet, and the number of samples reported as trained. ``end``:
    indices from here on were reserved (-1: none). ``begun``: some worker has or had a lease of it."""

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
    """Return the number of samples to lease: about left / (4 p), in whole batches, from 1 to 64 of them, never more
    than are left. At least ``least`` batches, since workers with short steps would wait for small leases; but at most
    left / p, or a quarter of a worker's share of all that is left if ``after`` samples of later passes follow:
    workers wait for each other only at the end of the last pass.

    >>> [chunk(left, batch=10, live_workers=2) for left in (1000, 25, 3)]
    [120, 10, 3]
    >>> [chunk(left, batch=10, live_workers=2, least=30) for left in (1000, 100, 25)]
    [300, 50, 10]
    >>> [chunk(100, batch=10, live_workers=2, least=30, after=after) for after in (300, 10_000)]
    [50, 100]
    """
    share, of_all = (samples // (max(1, live_workers) * batch) for samples in (left, left + after))
    batches = max(share // 4, min(least, max(share, of_all // 4)))
    return min(left, batch * min(MOST_BATCHES, max(1, batches)))

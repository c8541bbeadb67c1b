"""How late updates are, as counts in a fixed number of buckets: the distribution of staleness. Pure.

A bucket counts the updates that were included after more steps than the bound before it and at most its own; the last one
counts all that were later than every bound. Zeros at the end are left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import zip_longest

BOUNDS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)  # steps
BUCKETS = len(BOUNDS) + 1
MOST = 1 << 62  # a worker may say what it likes, and JSON has room for this
Counts = tuple[int, ...]


class StalenessCounts:
    """Counts updates by their staleness in steps.

    >>> counts = StalenessCounts()
    >>> for steps in (0.5, 1.0, 2.5, 1000.0): counts.add(steps)
    >>> counts.taken()
    (2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)
    """

    def __init__(self) -> None:
        self._counts: list[int] = []

    def add(self, steps: float) -> None:
        """Count an update that was included after so many steps."""
        at = bisect_left(BOUNDS, steps)
        if at >= len(self._counts):
            self._counts += [0] * (at + 1 - len(self._counts))
        self._counts[at] += 1

    def taken(self) -> Counts:
        """Return the counts so far. From any thread."""
        return tuple(self._counts)


def summed(many: Iterable[Sequence[int]]) -> Counts:
    """Return the counts of several workers together.

    >>> summed([(1, 2), (), (0, 0, 5)])
    (1, 2, 5)
    """
    return tuple(min(MOST, sum(each)) for each in zip_longest(*many, fillvalue=0))


def since(before: Sequence[int], now: Sequence[int]) -> Counts:
    """Return what was counted since ``before``; all of it where counting began anew meanwhile.

    >>> since((1, 2), (1, 5, 1)), since((1, 2), (0, 1))
    ((0, 3, 1), (0, 1))
    """
    added = tuple(late - early for early, late in zip_longest(before, now, fillvalue=0))
    return tuple(now) if any(one < 0 for one in added) else added


def within(counts: Sequence[int], share: float) -> float | None:
    """Return the bound that this share of the updates keeps: infinite in the last bucket, None without updates.

    >>> within((5, 4, 1), 0.5), within((5, 4, 1), 0.9), within((), 0.5)
    (1, 2, None)
    """
    wanted, reached = share * sum(counts), 0
    if not wanted:
        return None
    for at, count in enumerate(counts):
        reached += count
        if reached >= wanted:
            return BOUNDS[at] if at < len(BOUNDS) else float("inf")
    return None


def staleness_text(counts: Sequence[int]) -> str:
    """Return the distribution in words; empty without updates.

    >>> staleness_text((5, 4, 1))
    'half of the updates come within 1 step, 9 in 10 within 2, all within 3'
    >>> staleness_text((0,) * 15 + (2,))
    'half of the updates come after more than 256 steps'
    """
    half, most, whole = (within(counts, share) for share in (0.5, 0.9, 1.0))
    if half is None:
        return ""
    if half > BOUNDS[-1]:
        return f"half of the updates come after more than {BOUNDS[-1]} steps"
    parts = [f"half of the updates come within {half} step{'s' * (half > 1)}"]
    parts += [
        f"{words} within {bound}" for words, bound in (("9 in 10", most), ("all", whole)) if bound and bound <= BOUNDS[-1]
    ]
    return ", ".join(parts)

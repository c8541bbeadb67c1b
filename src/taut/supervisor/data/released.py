"""Corrects the count of samples trained twice when an evicted worker rejoins and reports what it trained on.

When a worker is evicted, it is unknown which of its leases and reserves it has begun; this is estimated
(``admission.py``). If it lives, it may go on with its reserve until it knows of the eviction. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from taut.core.sample_ranges import Span, common, count, joined, without

if TYPE_CHECKING:
    from taut.supervisor.data.leases import Leases


class Released(Struct, frozen=True):
    """Samples taken from an evicted worker: those that it may have begun, and those that it probably has not."""

    doubtful: list[Span]
    spared: list[Span]


def correct_count(leases: Leases, rank: int, trained: Iterable[Span]) -> int:
    """Correct ``samples_again`` for evicted worker ``rank``, which trained on these spans, and return the change.

    >>> from taut.supervisor.data.leases import Leases
    >>> leases = Leases()
    >>> lease = leases.request(0, 0, 100, batch=10, live_workers=1)
    >>> _ = leases.release(0); again = leases.request(1, 0, 100, batch=10, live_workers=1)
    >>> leases.samples_again, correct_count(leases, 0, trained=[(0, 0, 5)]), leases.samples_again
    (20, -15, 5)
    """
    released, trained = leases.released.pop(rank, None), joined(trained)
    if released is None:
        return 0
    before = leases.samples_again
    for span in _less(released.doubtful, trained):
        waiting = common(leases.returned, span)
        leases.untouched = joined([*leases.untouched, *waiting])
        leases.samples_again -= count([span]) - count(waiting)
    for span in [part for other in trained for part in common(released.spared, other)]:
        waiting = common(leases.returned, span)
        leases.untouched = _less(leases.untouched, waiting)
        leases.samples_again += count([span]) - count(waiting)
    leases.samples_again = max(0, leases.samples_again)
    return leases.samples_again - before


def _less(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    left = list(spans)
    for other in others:
        left = without(left, other)
    return left

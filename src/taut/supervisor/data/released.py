"""What a worker that was given up trained on, once it is back and says so: corrects the count of samples trained twice.

When a worker is given up, nobody knows what it has begun of its leases and of its reserve; that is guessed
(``admission.py``). If it lives, it may go on with its reserve for as long as it does not know. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taut.core.sample_ranges import Span, common, count, joined, without

if TYPE_CHECKING:
    from taut.supervisor.data.leases import Leases


@dataclass(frozen=True, slots=True)
class Released:
    """What was taken from a worker: places that it may have begun, and places that it cannot have begun as far as was
    known."""

    doubtful: list[Span]
    spared: list[Span]


def settle(leases: Leases, rank: int, trained: Iterable[Span]) -> int:
    """Worker ``rank`` was given up, and trained on these places; return by how much ``samples_again`` changed.

    >>> from taut.supervisor.data.leases import Leases
    >>> leases = Leases()
    >>> lease = leases.request(0, 0, 100, batch=10, live_workers=1)
    >>> _ = leases.release(0); again = leases.request(1, 0, 100, batch=10, live_workers=1)
    >>> leases.samples_again, settle(leases, 0, trained=[(0, 0, 5)]), leases.samples_again
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
    for span in _both(released.spared, trained):
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


def _both(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    spans = list(spans)
    return [part for other in others for part in common(spans, other)]

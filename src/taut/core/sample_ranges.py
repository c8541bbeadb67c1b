"""Indices of passes over the data, as spans: sums, unions and differences. Pure."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[int, int, int]  # pass, first index, index after the last


def count(spans: Iterable[Span]) -> int:
    """Return the number of indices.

    >>> count([(0, 2, 5), (1, 0, 4)])
    7
    """
    return sum(hi - lo for _, lo, hi in spans)


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return the same indices in as few spans as possible, in order.

    >>> joined([(0, 4, 6), (0, 0, 4), (0, 3, 5), (1, 6, 8), (0, 9, 9)])
    [(0, 0, 6), (1, 6, 8)]
    """
    found: list[Span] = []
    for epoch, lo, hi in sorted(spans):
        if lo >= hi:
            continue
        if found and found[-1][0] == epoch and found[-1][2] >= lo:
            found[-1] = (epoch, found[-1][1], max(hi, found[-1][2]))
        else:
            found.append((epoch, lo, hi))
    return found


def beyond(spans: Iterable[Span], indices: int) -> list[Span]:
    """Return the spans after the first ``indices``, in their order.

    >>> beyond([(0, 2, 5), (1, 0, 4)], 4), beyond([(0, 2, 5)], 9)
    ([(1, 1, 4)], [])
    """
    left: list[Span] = []
    for epoch, lo, hi in spans:
        cut = min(hi, lo + indices)
        indices -= cut - lo
        if cut < hi:
            left.append((epoch, cut, hi))
    return left


def last(span: Span, indices: int, batch: int) -> list[Span]:
    """Return about so many of the last indices, cut between batches; empty if there are none.

    >>> last((0, 0, 100), 25, batch=10), last((0, 90, 100), 25, batch=10), last((0, 0, 100), 5, batch=10)
    ([(0, 80, 100)], [(0, 90, 100)], [])
    """
    epoch, lo, hi = span
    lo = max(lo, -(-(hi - indices) // batch) * batch)
    return [(epoch, lo, hi)] if lo < hi else []


def overlap(one: Span, other: Span) -> int:
    """Return the number of indices that two spans share.

    >>> overlap((0, 2, 6), (0, 4, 9)), overlap((0, 2, 6), (1, 4, 9))
    (2, 0)
    """
    return max(0, min(one[2], other[2]) - max(one[1], other[1])) if one[0] == other[0] else 0


def common(spans: Iterable[Span], other: Span) -> list[Span]:
    """Return the part of ``spans`` that lies in ``other``.

    >>> common([(0, 0, 10), (1, 0, 5)], (0, 4, 6))
    [(0, 4, 6)]
    """
    return [(one[0], max(one[1], other[1]), min(one[2], other[2])) for one in spans if overlap(one, other)]


def without(spans: Iterable[Span], other: Span) -> list[Span]:
    """Return the part of ``spans`` that does not lie in ``other``, in their order.

    >>> without([(0, 0, 10), (1, 0, 5)], (0, 4, 6))
    [(0, 0, 4), (0, 6, 10), (1, 0, 5)]
    """
    left: list[Span] = []
    for one in spans:
        if not overlap(one, other):
            left.append(one)
            continue
        epoch, begin, end = one
        left += [(epoch, *part) for part in ((begin, other[1]), (other[2], end)) if part[0] < part[1]]
    return left

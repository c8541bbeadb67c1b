"""Recursive halving and doubling: exchange halves, then quarters, ...; and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from taut.collectives.schedule import ELEMENT_NBYTES, Range, Round, Schedule

_NOTHING: Round = ([], [])


@dataclass(frozen=True)
class HalvingDoubling(Schedule):
    """As few bytes as the ring, with the latency of a tree, where p is a power of two.

    Let q be the power of two at or below p. The positions from q on first send their vector to position - q, which adds
    it, and get the sum from there at the end. The first q positions exchange halves of the vector at distance q/2,
    quarters at q/4, ... until each holds the sum of one chunk; then the same exchanges in reverse hand the sums out.

        cost = 2 log2(q) a + 2(q-1)/q n b, and 2(a + n b) more where p > q

    Rabenseifner, Optimization of collective reduction operations, 2004.

    >>> for sends, receives in HalvingDoubling().program(3, 0, 10).rounds: print(*sends, *receives)
    Range(peer=2, lo=0, hi=10, add=True)
    Range(peer=1, lo=5, hi=10, add=False) Range(peer=1, lo=0, hi=5, add=True)
    Range(peer=1, lo=0, hi=5, add=False) Range(peer=1, lo=5, hi=10, add=False)
    Range(peer=2, lo=0, hi=10, add=False)
    """

    name = "halving-doubling"

    def exchanges(self, p: int, position: int, length: int) -> list[Round]:
        q = core(p)
        fold, unfold = _NOTHING, _NOTHING
        if position >= q:
            whole = [Range(position - q, 0, length)]
            fold, unfold = (whole, []), ([], whole)
        elif position + q < p:
            fold, unfold = ([], [Range(position + q, 0, length, True)]), ([Range(position + q, 0, length)], [])
        inner = list(_exchanges(q, position, length)) if position < q else [_NOTHING] * self.rounds(q)
        return inner if q == p else [fold, *inner, unfold]

    def rounds(self, p: int) -> int:
        q = core(p)
        return 2 * (q.bit_length() - 1) + (2 if p > q else 0)

    def crossings(self, p: int) -> float:
        q = core(p)
        return 2 * (q - 1) / q + (2 if p > q else 0)

    def bytes_sent(self, p: int, position: int, nbytes: int) -> int:
        """Return n for a folded position. For the others: all but the own chunk, then the blocks of 1, 2, 4, ...
        chunks around it; and n more for one that has a position folded into it."""
        q = core(p)
        if position >= q:
            return nbytes
        length = nbytes // ELEMENT_NBYTES
        own = _block(q, position, 1, length)
        sent = length - (own[1] - own[0])
        for distance in _distances(q):
            lo, hi = _block(q, position, distance, length)
            sent += hi - lo
        return ELEMENT_NBYTES * sent + (nbytes if position + q < p else 0)


def core(p: int) -> int:
    """Return the power of two at or below ``p``.

    >>> [core(p) for p in (1, 2, 3, 4, 17)]
    [1, 2, 2, 4, 16]
    """
    return 1 << (p.bit_length() - 1)


def _distances(q: int) -> list[int]:
    return [q >> k for k in range(1, q.bit_length())]  # q/2, q/4, ... 1


def _block(q: int, position: int, size: int, length: int) -> tuple[int, int]:
    """Return the elements of the block of ``size`` (a power of two) chunks in which ``position`` lies."""
    first = position - position % size
    return first * length // q, (first + size) * length // q


def _exchanges(q: int, position: int, length: int) -> Iterator[Round]:
    for distance in _distances(q):
        other = position ^ distance
        mine, theirs = _block(q, position, distance, length), _block(q, other, distance, length)
        yield [Range(other, *theirs)], [Range(other, *mine, True)]
    for distance in reversed(_distances(q)):
        other = position ^ distance
        mine, theirs = _block(q, position, distance, length), _block(q, other, distance, length)
        yield [Range(other, *mine)], [Range(other, *theirs)]

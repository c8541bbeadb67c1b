"""Ring all-reduce: chunks travel round a ring, once to be summed and once to be handed out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from taut.collectives.schedule import ELEMENT_NBYTES, Range, Round, Schedule, chunk


@dataclass(frozen=True)
class Ring(Schedule):
    """The fewest bytes that are possible, over two neighbours only; latency grows with p.

    The vector is cut into p chunks. For p - 1 rounds every position sends a chunk to the next position, which adds its
    own; then position i holds the sum of chunk i + 1. For another p - 1 rounds the sums go round and replace.

        cost = 2(p-1) a + 2(p-1)/p n b

    Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.

    >>> for sends, receives in Ring().program(2, 0, 10).rounds: print(*sends, *receives)
    Range(peer=1, lo=0, hi=5, add=False) Range(peer=1, lo=5, hi=10, add=True)
    Range(peer=1, lo=5, hi=10, add=False) Range(peer=1, lo=0, hi=5, add=False)
    """

    name = "ring"

    def exchanges(self, p: int, position: int, length: int) -> Iterator[Round]:
        yield from reduce_scatter(range(p), position, 0, length)
        yield from all_gather(range(p), position, 0, length)

    def rounds(self, p: int) -> int:
        return 2 * (p - 1)

    def bytes_sent(self, p: int, position: int, nbytes: int) -> int:
        """Return 2n less two chunks: the one it sums is not sent on the first way round, the next not on the second."""
        return ring_bytes(p, position, nbytes)


def reduce_scatter(members: Sequence[int], at: int, lo: int, hi: int) -> Iterator[Round]:
    """Return rounds after which member ``at`` of the ring ``members`` holds the sum of chunk ``at`` + 1 of ``lo..hi``."""
    return _around(members, at, lo, hi, first=at, add=True)


def all_gather(members: Sequence[int], at: int, lo: int, hi: int) -> Iterator[Round]:
    """Return rounds that hand on the sums of ``reduce_scatter``, so that all members hold all of ``lo..hi``."""
    return _around(members, at, lo, hi, first=at + 1, add=False)


def _around(members: Sequence[int], at: int, lo: int, hi: int, first: int, add: bool) -> Iterator[Round]:
    """Return rounds in which chunk ``first`` is sent, and then each chunk that came in the round before."""
    p = len(members)
    after, before = members[(at + 1) % p], members[at - 1]
    sent = chunk(lo, hi, p, first)
    for step in range(1, p):
        received = chunk(lo, hi, p, first - step)
        yield [Range(after, *sent)], [Range(before, *received, add)]
        sent = received


def dense_ring_nbytes(p: int, parameters: int) -> int:
    """Return the bytes that one of ``p`` workers sends, on average, for a ring all-reduce of a float32 gradient.

    Every figure of "fewer bytes" is relative to this: it is what plain synchronous training sends in a step.

    >>> dense_ring_nbytes(4, 100), dense_ring_nbytes(1, 100)
    (600, 0)
    """
    return 2 * (p - 1) * ELEMENT_NBYTES * parameters // p


def ring_bytes(p: int, at: int, nbytes: int) -> int:
    """Return the bytes that member ``at`` of a ring of ``p`` sends to all-reduce ``nbytes``.

    >>> ring_bytes(4, 0, 400)
    600
    """
    if p == 1:
        return 0
    length = nbytes // ELEMENT_NBYTES
    kept = [chunk(0, length, p, at + offset) for offset in (1, 2)]
    return ELEMENT_NBYTES * (2 * length - sum(hi - lo for lo, hi in kept))

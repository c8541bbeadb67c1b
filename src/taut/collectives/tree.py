"""Tree all-reduce: whole vectors up a binomial tree to position 0, the sum down again."""

from __future__ import annotations

from dataclasses import dataclass

from taut.collectives.schedule import Range, Round, Schedule


@dataclass(frozen=True)
class Tree(Schedule):
    """Simple, and few messages in all, 2(p-1); but the root receives the whole vector ceil(log2 p) times.

    In round k of the way up, positions with lowest set bit 2^k send their sum to position - 2^k; the way down mirrors it.

        cost = 2 ceil(log2 p) (a + n b)

    Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005.

    >>> for sends, receives in Tree().program(3, 1, 10).rounds: print(*sends, *receives)
    Range(peer=0, lo=0, hi=10, add=False)
    <BLANKLINE>
    <BLANKLINE>
    Range(peer=0, lo=0, hi=10, add=False)
    """

    name = "tree"

    def exchanges(self, p: int, position: int, length: int) -> list[Round]:
        up: list[Round] = []
        down: list[Round] = []
        for bit in (1 << k for k in range(levels(p))):
            children = [position + bit] if _is_parent(p, position, bit) else []
            parents = [position - bit] if position % (2 * bit) == bit else []
            up.append(([Range(to, 0, length) for to in parents], [Range(frm, 0, length, True) for frm in children]))
            down.append(([Range(to, 0, length) for to in children], [Range(frm, 0, length) for frm in parents]))
        return [*up, *reversed(down)]

    def rounds(self, p: int) -> int:
        return 2 * levels(p)

    def crossings(self, p: int) -> float:
        return self.rounds(p)

    def bytes_sent(self, p: int, position: int, nbytes: int) -> int:
        """Return n up, unless it is the root, and n down to every child."""
        children = sum(_is_parent(p, position, 1 << k) for k in range(levels(p)))
        return nbytes * (children + (position > 0))


def levels(p: int) -> int:
    """Return ceil(log2 p).

    >>> [levels(p) for p in (1, 2, 3, 4, 5)]
    [0, 1, 2, 2, 3]
    """
    return (p - 1).bit_length()


def _is_parent(p: int, position: int, bit: int) -> bool:
    """Return whether ``position`` has a child at distance ``bit``."""
    return position % (2 * bit) == 0 and position + bit < p

"""All-gather of whole contributions, for payloads that cannot be summed piece by piece (sparse or coded ones)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from taut.collectives.schedule import Program, Schedule, assemble, check


@dataclass(frozen=True)
class Gather(Schedule):
    """Everybody sends its contribution to everybody. The buffer has one slot per position; the own one is filled before.

        cost = a + (p-1) n b

    No contribution depends on another, so all leave at once and latency counts once; position i starts with i + 1, so
    that not all send to the same one. Summing the slots, 0 first, is the caller's, and gives the same bits everywhere.
    With contributions compressed to n/c bytes it sends fewer than a ring does for the dense ones only if c > p/2.

    The machine moves elements of any type here: take a buffer of bytes for coded payloads.

    >>> Gather().buffer_length(3, 10)
    30
    >>> for sends, receives in Gather().program(2, 1, 10).rounds: print(*sends, *receives)
    SendStep(round=0, to=0, lo=10, hi=20) ReceiveStep(round=0, frm=0, lo=0, hi=10, add=False)
    """

    name = "gather"
    sums = False

    def program(self, p: int, position: int, length: int) -> Program:
        check(p, position, length)
        return self.unequal([length] * p, position)

    def unequal(self, lengths: Sequence[int], position: int) -> Program:
        """Return the program for contributions of ``lengths`` elements, which all must know (gather them first, one
        number each).

        >>> Gather().unequal([3, 0, 4], 1).rounds[0][0], Gather().unequal([3, 0, 4], 1).length
        ((), 7)
        """
        p = len(lengths)
        check(p, position, min(lengths, default=0))
        ends = [0, *accumulate(lengths)]
        if p == 1:
            return Program((), ends[-1])
        sends = [((position + step) % p, ends[position], ends[position + 1]) for step in range(1, p)]
        others = [(position - step) % p for step in range(1, p)]
        return assemble(ends[-1], [(sends, [(frm, ends[frm], ends[frm + 1], False) for frm in others])])

    def rounds(self, p: int) -> int:
        check(p)
        return 1 if p > 1 else 0

    def cost(self, p: int, nbytes: int, latency_s: float, seconds_per_byte: float) -> float:
        return self.rounds(p) * latency_s + (p - 1) * nbytes * seconds_per_byte

    def bytes_sent(self, p: int, position: int, nbytes: int) -> int:
        """Return the contribution, to each of the p - 1 others."""
        check(p, position, nbytes)
        return (p - 1) * nbytes

    def buffer_length(self, p: int, length: int) -> int:
        check(p, 0, length)
        return p * length

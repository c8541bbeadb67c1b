"""The contract of an all-reduce schedule: for every position of a group, which range it sends to which other, by round.

The rules of a program, which ``Reduction`` executes:

- A send of round r carries the buffer as the receives of all rounds before r, and none of round r, have left it.
- Receives that overlap are applied in the order of their rounds; within a round, in the order in which they stand.
- A receive that replaces brings the finished sum of all contributions. So every sum is computed once and then copied,
  and all positions end with the same bits.
- Messages of no elements are left out, on both sides.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from taut.errors import Misuse

ELEMENT_NBYTES = 4  # sums are of float32


class Range(NamedTuple):
    """Elements ``lo..hi`` (``hi`` not included) that go to, or come from, the position ``peer`` of the group. Those that
    come are added to the buffer (``add``), or else replace it."""

    peer: int
    lo: int
    hi: int
    add: bool = False


Round = tuple[Sequence[Range], Sequence[Range]]  # what a position sends, and what it receives


@dataclass(frozen=True, slots=True)
class Program:
    """One position's part of a collective. ``length``: elements of the buffer that it is for; None where a hand-written
    program leaves that open."""

    rounds: tuple[Round, ...]
    length: int | None = None


class Schedule(ABC):
    """An algorithm that makes programs, and knows what they cost. ``name``: in the registry."""

    name: ClassVar[str]

    def program(self, p: int, position: int, length: int) -> Program:
        """Return the part of ``position`` in a group of ``p``, each with a contribution of ``length`` elements."""
        if p < 1:
            raise Misuse(f"a group of {p}", "at least one worker")
        if not 0 <= position < p:
            raise Misuse(f"position {position} in a group of {p}", f"0 to {p - 1}")
        if length < 0:
            raise Misuse(f"a buffer of {length}", "0 or more")
        rounds = self.exchanges(p, position, length)
        return Program(tuple((_filled(sends), _filled(receives)) for sends, receives in rounds), length)

    @abstractmethod
    def exchanges(self, p: int, position: int, length: int) -> Iterable[Round]:
        """Return the rounds of a program; ranges of no elements are left out later."""

    @abstractmethod
    def rounds(self, p: int) -> int:
        """Return how many messages follow one another: the factor of the latency."""

    def crossings(self, p: int) -> float:
        """Return how often the vector crosses the busiest link, the factor of the bytes; by default the least."""
        return 2 * (p - 1) / p

    def cost(self, p: int, nbytes: int, latency_s: float, seconds_per_byte: float) -> float:
        """Return the seconds for ``nbytes`` per position, if a message takes latency_s + nbytes * seconds_per_byte,
        and a position sends one and receives one at a time. Adding is not counted."""
        return self.rounds(p) * latency_s + self.crossings(p) * nbytes * seconds_per_byte

    @abstractmethod
    def bytes_sent(self, p: int, position: int, nbytes: int) -> int:
        """Return what ``position`` sends, to the byte, for a contribution of ``nbytes`` (float32: a multiple of 4)."""


def _filled(ranges: Iterable[Range]) -> tuple[Range, ...]:
    return tuple(each for each in ranges if each.hi > each.lo)


def chunk(lo: int, hi: int, parts: int, which: int) -> tuple[int, int]:
    """Return part ``which`` (modulo ``parts``) of ``lo..hi`` cut into ``parts``, equal to within one element.

    >>> [chunk(0, 10, 4, which) for which in range(4)]
    [(0, 2), (2, 5), (5, 7), (7, 10)]
    """
    which %= parts
    size = hi - lo
    return lo + which * size // parts, lo + (which + 1) * size // parts

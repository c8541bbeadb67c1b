"""A named shape wires any set of workers, from their ranks alone.

Every worker works out the wiring for itself, from the written form of the shape, the sorted list of members and the
number of the round. Nobody is told a graph, and no history is needed: whoever knows the same members has the same
graph.

**Seats.** Most shapes are defined over seats 0 to n - 1. The n members take them so: a rank below n has the seat of its
own number; the others, in rank order, take the seats that are left, lowest first. So

- at the start, seat and rank are the same;
- when a worker leaves, the one with the highest rank takes its seat (unless it was the leaver), and everybody else keeps
  theirs: the shape stays whole, and only the edges of a few seats change;
- a newcomer, whose rank is above the others', takes the seat at the end, or gives back the one that was borrowed.

Ring and line go by the sorted ranks instead, where a leaver's two neighbours simply become each other's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from taut.errors import Misuse
from taut.topologies.graph import Edge, Graph


def seats(members: Sequence[int]) -> list[int]:
    """Who sits where: the rank on each seat.

    >>> seats([0, 1, 2, 3]), seats([0, 2, 3]), seats([0, 2, 3, 4]), seats([7, 9])
    ([0, 1, 2, 3], [0, 3, 2], [0, 4, 2, 3], [7, 9])
    """
    present = set(members)
    size = len(present)
    others = iter(sorted(rank for rank in present if not 0 <= rank < size))
    return [seat if seat in present else next(others) for seat in range(size)]


class Shape(ABC):
    """A frozen dataclass of hyper-parameters that wires any members, at least one, into a graph.

    ``wire`` never refuses: workers may leave at any time, and the others must go on. Every graph it gives is connected,
    or, where the shape varies from round to round, the union of its rounds is. What the user got wrong is said by
    ``check``, before the start.
    """

    name: ClassVar[str]
    varies: ClassVar[bool] = False  # from round to round

    @abstractmethod
    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        """The graph over these ranks in this round."""

    def check(self, workers: int) -> None:
        """``Misuse`` where this many workers cannot start in this shape, with what would fit."""
        if workers < 1:
            raise Misuse(f"{self.name} with {workers} workers", "at least 1")

    def union(self, members: Sequence[int]) -> Graph:
        """All edges that any round uses: the channels to open. Of a shape that does not vary, the graph itself."""
        return self.wire(members)

    def period(self, workers: int) -> int:
        """After how many rounds the graphs repeat; 0: never."""
        return 1


def seated(members: Sequence[int], edges: Sequence[Edge], directed: bool = False) -> Graph:
    """The graph over members whose edges are told by seat. What small shapes wire to itself is dropped."""
    ranks = seats(members)
    pairs = frozenset((ranks[a], ranks[b]) for a, b in edges if a != b)
    return Graph(tuple(ranks), pairs, directed)

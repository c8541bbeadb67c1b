"""The shapes that need no explanation: complete, ring, line, star."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from taut.errors import Misuse
from taut.topologies.graph import Graph
from taut.topologies.repair import ring_of
from taut.topologies.shape import Shape

MOST_COMPLETE = 2048  # workers: two million edges; each more costs memory on every worker


@dataclass(frozen=True)
class Complete(Shape):
    """Everybody wired to everybody: n (n - 1) / 2 edges, one step to anyone, and the mean after one round.

    >>> Complete().wire(range(4)).neighbours(0)
    [1, 2, 3]
    """

    name = "complete"

    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        return Graph(tuple(members), frozenset(combinations(sorted(set(members)), 2)))

    def check(self, workers: int) -> None:
        super().check(workers)
        if workers > MOST_COMPLETE:
            given = f"complete with {workers} workers: {workers * (workers - 1) // 2} edges"
            raise Misuse(given, f"at most {MOST_COMPLETE} workers", "try exponential, torus or random:degree=8")


@dataclass(frozen=True)
class Ring(Shape):
    """Each wired to the next in rank order, the last to the first: two neighbours, the least that survives a broken edge.

    It spreads slowly: the spectral gap falls with 1 / n^2.

    >>> Ring().wire([0, 1, 2, 3, 8]).neighbours(8)
    [0, 3]
    """

    name = "ring"
    advised = "ring"

    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        return Graph(tuple(members), frozenset(ring_of(sorted(set(members)))))


@dataclass(frozen=True)
class Line(Shape):
    """Each wired to the next in rank order: a ring that is open at the ends. A tree of the fewest neighbours.

    >>> Line().wire(range(4)).diameter()
    3
    """

    name = "line"

    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        return Graph(tuple(members), frozenset(pairwise(sorted(set(members)))))


@dataclass(frozen=True)
class Star(Shape):
    """Everybody wired to the lowest rank, the hub; when it leaves, to the next.

    >>> Star().wire([2, 4, 5]).neighbours(2)
    [4, 5]
    """

    name = "star"

    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        hub, *others = sorted(set(members))
        return Graph(tuple(members), frozenset((hub, other) for other in others))

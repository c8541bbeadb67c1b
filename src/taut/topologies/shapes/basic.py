"""The shapes that need little explanation: complete, ring, line, star, tree, hypercube."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from taut.errors import Misuse
from taut.topologies.graph import Graph
from taut.topologies.repair import ring_of
from taut.topologies.shape import Shape, from_positions

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


@dataclass(frozen=True)
class Tree(Shape):
    """A balanced tree, filled level by level like a heap: position s hangs from position (s - 1) // branching.

    n - 1 edges, the fewest that connect; a step up or down is on the way of many, so it mixes slowly but relays cheaply.
    It is a tree for any members, since each position but the first has one edge to a lower position. ``branching``: how
    many hang from each.

    >>> Tree(branching=3).wire(range(8)).neighbours(1)
    [0, 4, 5, 6]
    """

    name = "tree"
    branching: int = 2

    def __post_init__(self) -> None:
        if self.branching < 1:
            raise Misuse(f"tree: branching={self.branching}", "a whole number from 1", "2 makes a binary tree")

    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        positions = range(1, len(set(members)))
        return from_positions(members, [((position - 1) // self.branching, position) for position in positions])


@dataclass(frozen=True)
class Hypercube(Shape):
    """log2(n) neighbours each, log2(n) steps to anyone.

    It must start with a power of two. When workers have left, the positions 0 to n - 1 of the next larger cube are wired
    (an incomplete hypercube; Katseff, 1988). That is connected: clearing the highest bit of a position leads along an
    edge to a lower one, which is taken, and so down to position 0.

    >>> Hypercube().wire(range(8)).neighbours(5)
    [1, 4, 7]
    """

    name = "hypercube"

    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        workers = len(set(members))
        bits = range((workers - 1).bit_length())
        edges = [(s, s | 1 << bit) for s in range(workers) for bit in bits if s < s | 1 << bit < workers]
        return from_positions(members, edges)

    def check(self, workers: int) -> None:
        super().check(workers)
        if workers & (workers - 1):
            below = 1 << workers.bit_length() - 1
            remedy = f"use {below} or {2 * below} workers, or exponential, which takes any number"
            raise Misuse(f"hypercube with {workers} workers", "a power of two", remedy)

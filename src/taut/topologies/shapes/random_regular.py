"""Random regular graphs: few neighbours each, chosen by lot, and nearly the best mixing that so few can give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from taut.core.splitmix import hash_bits
from taut.errors import Misuse
from taut.topologies.graph import Edge, Graph
from taut.topologies.repair import ring_of
from taut.topologies.shape import Shape

ATTEMPTS = 200


@dataclass(frozen=True)
class RandomRegular(Shape):
    """Rings through all workers, each in an order drawn by lot; of an odd degree, one pairing more.

    For ring k the members stand in the order of hash_bits(seed, k, rank). A pair that is neighbours already is exchanged
    with the next ones. Since the first ring goes through everybody the graph is connected, and since a rank's lot does
    not depend on the others, a leaver's neighbours in a ring mostly just close the gap (Law and Siu, "Distributed
    construction of random expander networks", 2003; sums of random rings are as good as uniform random regular graphs:
    Kim and Wormald, 2001). Above half of all possible neighbours, a sparse graph is drawn and its complement taken.

    Arguments:
        degree: neighbours of each. It must be below the number of workers and come out even. When so many have left
            that it does not, as many as can have ``degree`` neighbours; one may have one fewer or one more.
        seed: which graph.

    >>> graph = RandomRegular(degree=3, seed=1).wire(range(10))
    >>> {graph.degree(rank) for rank in range(10)}, graph.is_connected()
    ({3}, True)
    """

    name = "random"
    degree: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        if self.degree < 2:
            raise Misuse(f"random: degree={self.degree}", "a whole number from 2", "1 cannot connect three workers")

    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        ranks = sorted(set(members))
        return Graph(tuple(ranks), frozenset(regular(ranks, min(self.degree, len(ranks) - 1), self.seed)))

    def check(self, workers: int) -> None:
        super().check(workers)
        given = f"random:degree={self.degree} with {workers} workers"
        if self.degree >= workers:
            fits = (
                f"try degree={min(3, workers - 1) if workers % 2 == 0 else 2}, or complete" if workers > 2 else "try ring"
            )
            raise Misuse(given, f"a degree below {workers}", fits)
        if self.degree * workers % 2:
            remedy = f"try degree={self.degree - 1} or {self.degree + 1}, or {workers + 1} workers"
            raise Misuse(given, "workers x degree to be even, as every edge has two ends", remedy)


def regular(ranks: list[int], degree: int, seed: int) -> set[Edge]:
    """Return the edges, lower rank first. The graph is exactly regular where n x degree is even."""
    most = len(ranks) - 1
    if 2 * degree > most:
        return set(combinations(ranks, 2)) - _sparse(ranks, most - degree, seed)
    return _sparse(ranks, degree, seed)


def _sparse(ranks: list[int], degree: int, seed: int) -> set[Edge]:
    """Return the edges for at most half of all neighbours: the best of several draws, nearly always the first."""
    best: set[Edge] = set()
    for attempt in range(ATTEMPTS):
        edges = _draw(ranks, degree, seed, attempt)
        if len(edges) > len(best):
            best = edges
        if len(best) == len(ranks) * degree // 2:
            break
    return best


def _draw(ranks: list[int], degree: int, seed: int, attempt: int) -> set[Edge]:
    edges: set[Edge] = set()
    for ring in range(degree // 2):
        order = sorted(ranks, key=lambda rank: (hash_bits(seed, attempt, ring, rank), rank))
        _avoid(order, edges, closed=True)
        edges.update((min(pair), max(pair)) for pair in ring_of(order))
    if degree % 2:
        order = sorted(ranks, key=lambda rank: (hash_bits(seed, attempt, degree, rank), rank))
        _avoid(order, edges, closed=False)
        edges.update((min(pair), max(pair)) for pair in zip(order[::2], order[1::2], strict=False))
    return edges


def _avoid(order: list[int], taken: set[Edge], closed: bool) -> None:
    """Exchange elements of ``order``, in place, until (almost) no two that are to be wired are wired already. ``closed``:
    everybody is wired to the next; otherwise the first to the second, the third to the fourth and so on."""
    for index in range(1, len(order), 1 if closed else 2):
        before = order[index - 1]
        for other in range(index, len(order)):
            after = order[other]
            if (min(before, after), max(before, after)) not in taken:
                order[index], order[other] = after, order[index]
                break

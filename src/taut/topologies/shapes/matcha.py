"""MATCHA: a base graph taken apart into matchings, a few of which are used in each round, by lot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from taut.errors import Misuse
from taut.topologies.graph import Edge, Graph
from taut.topologies.shape import Shape
from taut.topologies.shapes.basic import Ring
from taut.topologies.shapes.edge_coloring import matchings
from taut.topologies.shapes.matching_rates import probabilities
from taut.topologies.splitmix import chance


@dataclass(frozen=True)
class Matcha(Shape):
    """Time-varying matchings (Wang et al., "MATCHA: a matching-based link sampling for decentralized training", 2019).

    The base graph's edges are coloured, at most one more colour than the highest degree, so that the edges of a colour
    are a matching: all of them can be used at once without a worker talking to two. In each round matching j is used
    with probability p_j, independently, drawn from (seed, round, j) alike by everybody. The p_j make the algebraic
    connectivity of the expected graph large,

        maximize lambda_2(sum_j p_j L_j)   so that   sum_j p_j <= budget x matchings,   budget / 8 <= p_j <= 1,

    so edges that hold the graph together are used more often than those that have a detour. A round's graph need not be
    connected, and may be empty; the union over time is the base graph.

    Arguments:
        budget: the share of the base graph's rounds of communication that may be spent, above 0 and up to 1.
        base: the shape that is taken apart; undirected and the same in every round.
        seed: of the lots.

    >>> shape = Matcha(budget=0.5)
    >>> sorted(shape.wire(range(4), round=2).edges)
    [(0, 1), (2, 3)]
    """

    name: ClassVar[str] = "matcha"
    varies: ClassVar[bool] = True
    budget: float = 0.5
    seed: int = 0
    base: Shape = field(default_factory=Ring)  # last: in the written form, all that follows is the base's

    def __post_init__(self) -> None:
        if not 0.0 < self.budget <= 1.0:
            raise Misuse(f"matcha: budget={self.budget:g}", "a share above 0 and up to 1", "try budget=0.5")
        if self.base.varies or self.base.wire((0, 1, 2)).directed:
            raise Misuse(
                f"matcha: base={self.base.name}",
                "an undirected graph that does not vary",
                "try base=torus or base=exponential:directed=no",
            )

    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        if round < 0:
            raise Misuse(f"round {round}", "a number from 0")
        graph = self.union(members)
        chosen: set[Edge] = set()
        for number, (matching, probability) in enumerate(zip(*plan(graph, self.budget), strict=True)):
            if chance(self.seed, round, number) < probability:
                chosen |= matching
        return Graph(graph.members, frozenset(chosen))

    def union(self, members: Sequence[int]) -> Graph:
        return self.base.wire(members)

    def check(self, workers: int) -> None:
        super().check(workers)
        self.base.check(workers)

    def period(self, workers: int) -> int:
        return 0


@lru_cache(maxsize=16)
def plan(graph: Graph, budget: float) -> tuple[tuple[frozenset[Edge], ...], tuple[float, ...]]:
    """The matchings and how often each is used. Kept, since every round asks for it.

    >>> plan(Ring().wire(range(4)), 0.5)[1]
    (0.5, 0.5)
    """
    found = matchings(graph)
    return found, probabilities(graph, found, budget)

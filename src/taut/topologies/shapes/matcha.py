"""MATCHA: a base graph taken apart into matchings, a few of which are used in each round, by lot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count, pairwise

from taut.core.splitmix import hash_unit
from taut.errors import Misuse
from taut.topologies.graph import Edge, Graph
from taut.topologies.shape import Shape
from taut.topologies.shapes.basic import Ring

LEAST = 1 / 8  # of the budget: no matching is given up, so that the union over time is the base graph
STEPS, INNER = 64, 12
QUANTA = 1 << 20
MOST_EDGES = 4096  # beyond, all are used alike: the search would take seconds
# at[rank][color]: the neighbour at the other end of rank's edge of that color
Colors = dict[int, dict[int, int]]


@dataclass(frozen=True)
class Matcha(Shape):
    """Time-varying matchings (Wang et al., "MATCHA: a matching-based link sampling for decentralized training", 2019).

    The base graph's edges are colored, at most one more color than the highest degree, so that the edges of a color
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

    name = "matcha"
    varies = True
    budget: float = 0.5
    seed: int = 0
    base: Shape = field(default_factory=Ring)  # last: in the written form, all that follows is the base's

    def __post_init__(self) -> None:
        if not 0.0 < self.budget <= 1.0:
            raise Misuse(f"matcha: budget={self.budget:g}", "a share above 0 and up to 1", "try budget=0.5")
        if self.base.varies or self.base.wire((0, 1, 2)).directed:
            remedy = "try base=torus or base=exponential:directed=no"
            raise Misuse(f"matcha: base={self.base.name}", "an undirected graph that does not vary", remedy)

    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        if round < 0:
            raise Misuse(f"round {round}", "a number from 0")
        graph = self.union(members)
        chosen: set[Edge] = set()
        for number, (matching, probability) in enumerate(zip(*plan(graph, self.budget), strict=True)):
            if hash_unit(self.seed, round, number) < probability:
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
    """Return the matchings, and how often each is used. Cached, since every round asks for it.

    >>> plan(Ring().wire(range(4)), 0.5)[1]
    (0.5, 0.5)
    """
    found = matchings(graph)
    return found, probabilities(graph, found, budget)


def matchings(graph: Graph) -> tuple[frozenset[Edge], ...]:
    """Return the edges in as few matchings as can be found quickly: at most one more than the highest degree, by Misra
    and Gries' edge coloring ("A constructive proof of Vizing's theorem", 1992).

    Edges are colored one by one; where two ends have no free color in common, a fan of edges around one end hands its
    colors on, after a path of two alternating colors was swapped. Sorted throughout, so it is the same everywhere.

    >>> [sorted(each) for each in matchings(Graph((0, 1, 2, 3), {(0, 1), (1, 2), (2, 3), (3, 0)}))]
    [[(0, 1), (2, 3)], [(0, 3), (1, 2)]]
    """
    at: Colors = {rank: {} for rank in graph.members}
    enough = 1 + max(map(graph.degree, graph.members), default=0)
    for u, v in sorted(graph.edges):
        common = next((color for color in range(enough) if color not in at[u] and color not in at[v]), None)
        if common is None:
            _make_room(at, u, v)
        else:
            at[u][common], at[v][common] = v, u
    found: dict[int, set[Edge]] = {}
    for rank, ends in at.items():
        for color, other in ends.items():
            found.setdefault(color, set()).add((min(rank, other), max(rank, other)))
    return tuple(frozenset(found[color]) for color in sorted(found))


def _free(at: Colors, rank: int) -> int:
    return next(color for color in count() if color not in at[rank])


def _make_room(at: Colors, u: int, v: int) -> None:
    """Color the edge u - v where no color is free at both ends, by changing the colors of other edges."""
    fan = _fan(at, u, v)
    c, d = _free(at, u), _free(at, fan[-1])
    if c != d:
        _swap(at, u, c, d)
    colour_of = {other: color for color, other in at[u].items()}
    for end, w in enumerate(fan):  # the first at which d is free; up to it the fan is still one after the swap
        if d not in at[w]:
            break
        follows = end + 1 < len(fan) and colour_of[fan[end + 1]] not in at[w]
        assert follows, "Misra and Gries: a prefix of the fan ends where d is free"
    for before, after in pairwise(fan[: end + 1]):
        color = colour_of[after]
        del at[after][color]
        at[u][color], at[before][color] = before, u
    at[u][d], at[fan[end]][d] = fan[end], u


def _fan(at: Colors, u: int, v: int) -> list[int]:
    """Return as many neighbours of u as possible, v first: the color of u's edge to each is free at the one before."""
    fan, left = [v], dict(sorted(at[u].items()))
    while True:
        following = next((color for color in left if color not in at[fan[-1]]), None)
        if following is None:
            return fan
        fan.append(left.pop(following))


def _swap(at: Colors, u: int, c: int, d: int) -> None:
    """Turn the path from u whose edges are d, c, d, c ... into c, d, c, d ..."""
    path, color, rank = [u], d, u
    while color in at[rank]:
        rank = at[rank][color]
        path.append(rank)
        color = c if color == d else d
    edges = [(a, b, d if index % 2 == 0 else c) for index, (a, b) in enumerate(pairwise(path))]
    for a, b, old in edges:
        del at[a][old], at[b][old]
    for a, b, old in edges:
        new = c if old == d else d
        at[a][new], at[b][new] = b, a


def probabilities(graph: Graph, matchings: Sequence[frozenset[Edge]], budget: float) -> tuple[float, ...]:
    """Return the p_j that make lambda_2(sum p_j L_j) large, with sum p_j <= budget x matchings and budget/8 <= p_j <= 1.

    Projected ascent: with v the eigenvector of lambda_2, the slope along p_j is the sum of (v_a - v_b)^2 over the edges
    (a, b) of matching j. v is followed by a few power iterations per step. Plain additions and products in a fixed
    order, so that every machine gets the same bits (a linear algebra library would not promise that, and two workers
    that disagree on a lot wait for each other).

    >>> square = Graph((0, 1, 2, 3), {(0, 1), (1, 2), (2, 3), (3, 0)})
    >>> probabilities(square, [frozenset({(0, 1), (2, 3)}), frozenset({(1, 2), (0, 3)})], 0.25)
    (0.25, 0.25)
    """
    number = len(matchings)
    share = [budget] * number
    if number < 2 or budget == 1.0 or len(graph.edges) > MOST_EDGES:
        return tuple(share)
    index_of = {rank: index for index, rank in enumerate(graph.members)}
    pairs = [[(index_of[a], index_of[b]) for a, b in sorted(matching)] for matching in matchings]
    size = len(index_of)
    v = _unit([math.cos(math.pi * (index + 0.5) / size) for index in range(size)])
    total = [0.0] * number
    for step in range(STEPS):
        v = _follow(v, pairs, share)
        slope = [sum((v[a] - v[b]) ** 2 for a, b in each) for each in pairs]
        steepest = max(slope)
        if steepest > 0.0:
            length = budget / math.sqrt(1 + step)
            share = _project([p + length * s / steepest for p, s in zip(share, slope, strict=True)], budget)
        if step >= STEPS // 2:  # the mean of the later steps: where several eigenvectors compete, the steps swing
            total = [t + p for t, p in zip(total, share, strict=True)]
    mean = [t / (STEPS - STEPS // 2) for t in total]
    found = [max(LEAST * budget, math.floor(p * QUANTA) / QUANTA) for p in mean]
    alike = [budget] * number  # the best of all in graphs where matchings are alike, which the steps only circle
    return tuple(found if _connectivity(size, pairs, found) > 1.01 * _connectivity(size, pairs, alike) else alike)


def _connectivity(size: int, pairs: list[list[tuple[int, int]]], share: list[float]) -> float:
    """Return an upper bound of lambda_2: v'Lv for a v after many power iterations."""
    v = _unit([hash_unit(index) for index in range(size)])
    for _ in range(STEPS // 2):
        v = _follow(v, pairs, share)
    return sum(p * (v[a] - v[b]) ** 2 for p, each in zip(share, pairs, strict=True) for a, b in each)


def _follow(v: list[float], pairs: list[list[tuple[int, int]]], share: list[float]) -> list[float]:
    """Return v after power iterations of bound - L, towards the eigenvector of L of the smallest eigenvalue but 0."""
    bound = 2.0 * sum(share)  # a worker has one edge of each matching at most, so no eigenvalue is above
    for _ in range(INNER):
        new = [bound * x for x in v]
        for p, each in zip(share, pairs, strict=True):
            for a, b in each:
                flow = p * (v[a] - v[b])
                new[a] -= flow
                new[b] += flow
        v = _unit(new)
    return v


def _unit(v: list[float]) -> list[float]:
    """Return v without its mean (the eigenvector of eigenvalue 0), with length 1."""
    mean = sum(v) / len(v)
    centred = [x - mean for x in v]
    length = math.sqrt(sum(x * x for x in centred))
    return [x / length for x in centred] if length > 0.0 else centred


def _project(wanted: list[float], budget: float) -> list[float]:
    """Return the nearest p within the bounds whose sum is the budget: all are lowered by the same, then clipped."""
    least, target = LEAST * budget, budget * len(wanted)
    low, high = min(wanted) - 1.0, max(wanted)
    for _ in range(50):
        shift = (low + high) / 2
        if sum(min(1.0, max(least, p - shift)) for p in wanted) > target:
            low = shift
        else:
            high = shift
    return [min(1.0, max(least, p - high)) for p in wanted]

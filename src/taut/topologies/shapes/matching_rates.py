"""How often each matching is used, so that the expected graph is as well connected as the budget allows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from taut.topologies.graph import Edge, Graph
from taut.topologies.splitmix import chance

LEAST = 1 / 8  # of the budget: no matching is given up, so that the union over time is the base graph
STEPS, INNER = 64, 12
QUANTA = 1 << 20
MOST_EDGES = 4096  # beyond, all are used alike: the search would take seconds


def probabilities(graph: Graph, matchings: Sequence[frozenset[Edge]], budget: float) -> tuple[float, ...]:
    """p_j that make lambda_2(sum p_j L_j) large, with sum p_j <= budget x matchings and budget/8 <= p_j <= 1.

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
    place = {rank: index for index, rank in enumerate(graph.members)}
    pairs = [[(place[a], place[b]) for a, b in sorted(matching)] for matching in matchings]
    size = len(place)
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
    """lambda_2, from above: v'Lv for a v that was followed for long."""
    v = _unit([chance(index) for index in range(size)])
    for _ in range(STEPS // 2):
        v = _follow(v, pairs, share)
    return sum(p * (v[a] - v[b]) ** 2 for p, each in zip(share, pairs, strict=True) for a, b in each)


def _follow(v: list[float], pairs: list[list[tuple[int, int]]], share: list[float]) -> list[float]:
    """Some power iterations of bound - L towards the eigenvector of L = sum p_j L_j of the smallest eigenvalue but 0."""
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
    """Without its mean (the eigenvector of eigenvalue 0), and of length 1."""
    mean = sum(v) / len(v)
    centred = [x - mean for x in v]
    length = math.sqrt(sum(x * x for x in centred))
    return [x / length for x in centred] if length > 0.0 else centred


def _project(wanted: list[float], budget: float) -> list[float]:
    """The nearest p with budget/8 <= p_j <= 1 whose sum is the budget: all are lowered by the same, then clipped."""
    least, target = LEAST * budget, budget * len(wanted)
    low, high = min(wanted) - 1.0, max(wanted)
    for _ in range(50):
        shift = (low + high) / 2
        if sum(min(1.0, max(least, p - shift)) for p in wanted) > target:
            low = shift
        else:
            high = shift
    return [min(1.0, max(least, p - high)) for p in wanted]

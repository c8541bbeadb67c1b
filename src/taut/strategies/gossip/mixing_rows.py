"""What neighbours' vectors count in a worker's new one, and where that keeps the mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from taut.errors import Misuse
from taut.strategies.api import Method
from taut.topologies.graph import Graph

if TYPE_CHECKING:
    from taut.topologies.shape import Shape


def shares(graph: Graph, rank: int, kind: str) -> Mapping[int, float]:
    """The row of the mixing matrix that belongs to ``rank``, itself not in it: what others' x count in its new one.
    Worked out once for a graph.

    ``metropolis``: 1 / (1 + the larger of the two degrees). ``uniform``: 1 / (1 + degree), equal for all where the
    degrees are; a graph that lost this by a death is mixed by Metropolis weights (if directed, by what is heard).

    >>> shares(Graph((0, 1, 2), {(0, 1), (0, 2)}), 1, "metropolis")
    {0: 0.3333333333333333}
    """
    row = graph.kept.get((kind, rank))
    if row is None:
        others = graph.inward_lists[rank]
        if graph.directed or (kind == "uniform" and is_regular(graph)):
            row = dict.fromkeys(others, 1.0 / (1 + len(others)))
        else:
            row = {other: 1.0 / (1 + max(graph.degree(rank), graph.degree(other))) for other in others}
        graph.kept[kind, rank] = row
    return row


def is_regular(graph: Graph) -> bool:
    """Whether everybody sends to and hears from equally many."""
    lists = (*graph.inward_lists.values(), *graph.outward_lists.values())
    return len({len(others) for others in lists}) == 1


def check_mixing(method: Method, kind: str, shape: Shape, workers: int) -> None:
    """``Misuse`` where these weights would not keep the mean on this topology."""
    graph = shape.union(range(workers))
    if graph.directed and kind == "metropolis":
        raise Misuse(
            f"{method.name}: mixing=metropolis on {shape.name}, whose edges have directions",
            "an undirected topology",
            f"try {method.name}:mixing=uniform, or --strategy sgp",
        )
    if kind == "uniform" and not is_regular(graph):
        raise Misuse(
            f"{method.name}: mixing=uniform on {shape.name} of {workers} workers",
            "equally many neighbours for everybody",
            "try --strategy sgp" if graph.directed else f"try {method.name}:mixing=metropolis",
        )

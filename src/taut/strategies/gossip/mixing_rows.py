"""Mixing weights of one worker's neighbours, and checks that they conserve the mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from taut.errors import Misuse
from taut.strategies.api import Method
from taut.topologies.graph import Graph

if TYPE_CHECKING:
    from taut.topologies.shape import Shape


def shares(graph: Graph, rank: int, kind: str) -> Mapping[int, float]:
    """Return the row of the mixing matrix for ``rank``, without the diagonal; computed once for a graph.

    ``metropolis``: 1 / (1 + the larger of the two degrees). ``uniform``: 1 / (1 + degree), for equal degrees; a graph
    that is no longer regular after a death gets Metropolis weights (if directed, 1 / (1 + inward degree)).

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
    """Return whether all workers send to and hear from equally many."""
    lists = (*graph.inward_lists.values(), *graph.outward_lists.values())
    return len({len(others) for others in lists}) == 1


def check_mixing(method: Method, kind: str, shape: Shape, workers: int) -> None:
    """Raise ``Misuse`` if these weights would not conserve the mean on this topology."""
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
            "equally many neighbours for all workers",
            "try --strategy sgp" if graph.directed else f"try {method.name}:mixing=metropolis",
        )

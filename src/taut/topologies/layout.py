"""Where workers stand in a picture of their graph."""

from __future__ import annotations

import math
from collections.abc import Callable

from taut.topologies.graph import Graph
from taut.topologies.shape import Shape, seats
from taut.topologies.shapes.basic import Line, Star
from taut.topologies.shapes.edge_list import Edges
from taut.topologies.shapes.hypercube import Hypercube
from taut.topologies.shapes.matcha import Matcha
from taut.topologies.shapes.random_regular import RandomRegular
from taut.topologies.shapes.torus import Torus
from taut.topologies.shapes.tree import Tree

Places = dict[int, tuple[float, float]]


def places(shape: Shape, graph: Graph) -> Places:
    """A torus as a grid, a tree by its levels, a star around its hub, a user's graph by springs, the rest as a circle.

    >>> places(Torus(2, 3), Torus(2, 3).wire(range(6)))[4]
    (1.0, -1.0)
    """
    if isinstance(shape, Matcha):
        return places(shape.base, graph)
    if isinstance(shape, Torus):
        _, columns = shape.size(len(graph.members))
        return _by_seat(graph, lambda seat: (float(seat % columns), -float(seat // columns)))
    if isinstance(shape, Tree):
        return _levels(graph, shape.branching)
    if isinstance(shape, Hypercube) and len(graph.members) <= 16:
        return _by_seat(graph, _corner)
    if isinstance(shape, RandomRegular | Edges):
        return _springs(graph)
    return _rows(shape, graph)


def _rows(shape: Shape, graph: Graph) -> Places:
    """The shapes whose workers stand in their order."""
    if isinstance(shape, Line):
        return {rank: (1.2 * index, 0.0) for index, rank in enumerate(graph.members)}
    if isinstance(shape, Star):
        hub, *others = graph.members
        return {hub: (0.0, 0.0), **_circle(others)}
    return _circle(list(graph.members))


def _by_seat(graph: Graph, place: Callable[[int], tuple[float, float]]) -> Places:
    return {rank: place(seat) for seat, rank in enumerate(seats(graph.members))}


def _circle(ranks: list[int]) -> Places:
    """Clockwise from the top."""
    radius = max(1.0, len(ranks) / 6)
    turn = 2 * math.pi / max(1, len(ranks))
    return {rank: (radius * math.sin(turn * index), radius * math.cos(turn * index)) for index, rank in enumerate(ranks)}


def _levels(graph: Graph, branching: int) -> Places:
    """Leaves side by side, each parent over the middle of what hangs from it."""
    workers, at, leaves = len(graph.members), {}, 0.0

    def settle(seat: int, depth: int) -> float:
        nonlocal leaves
        below = range(branching * seat + 1, min(branching * seat + branching + 1, workers))
        under = [settle(child, depth + 1) for child in below]
        if not under:
            leaves += 1.0
        across = (under[0] + under[-1]) / 2 if under else leaves
        at[seat] = (across, -1.4 * depth)
        return across

    settle(0, 0)
    return _by_seat(graph, lambda seat: at[seat])


_AXES = ((1.0, 0.0), (0.0, 1.0), (0.38, 0.32), (2.0, -0.45))


def _corner(seat: int) -> tuple[float, float]:
    """The corner of a cube, or of two, drawn askew."""
    axes = [axis for bit, axis in enumerate(_AXES) if seat >> bit & 1]
    return 1.6 * sum(x for x, _ in axes), 1.6 * sum(y for _, y in axes)


def _springs(graph: Graph) -> Places:
    """Edges pull, workers push (Fruchterman and Reingold, 1991), from a circle, so the picture is always the same."""
    import networkx as nx

    web = nx.Graph()
    web.add_nodes_from(graph.members)
    web.add_edges_from(sorted(graph.edges))
    size = max(1.2, len(graph.members) ** 0.5 * 0.7)
    start = {rank: (x / size, y / size) for rank, (x, y) in _circle(list(graph.members)).items()}
    found = nx.spring_layout(web, pos=start, iterations=200, seed=0)
    return {rank: (size * float(x), size * float(y)) for rank, (x, y) in found.items()}

"""A picture of a graph, as the bytes of a PNG or SVG. For shapes that vary, a panel for each round."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from typing import Any

from taut.topologies.graph import Edge, Graph
from taut.topologies.shape import Shape, ranks_by_position
from taut.topologies.shapes.basic import Hypercube, Line, Star, Tree
from taut.topologies.shapes.edge_list import Edges
from taut.topologies.shapes.matcha import Matcha
from taut.topologies.shapes.random_regular import RandomRegular
from taut.topologies.shapes.torus import Torus

NODE, TEXT, EDGE, IDLE = "#1f5f8b", "#ffffff", "#3c4650", "#d5dae0"
RADIUS = 0.24
MOST_LABELLED = 100


def draw(shape: Shape, rounds: Sequence[Graph], title: str, kind: str) -> bytes:
    """Return one picture of the graphs of some rounds.

    Arguments:
        rounds: one graph, or of a shape that varies one for each round to show; each over the same members.
        kind: ``png`` or ``svg``.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    union = shape.union(rounds[0].members)
    at = points(shape, union)
    columns = min(4, len(rounds))
    rows = math.ceil(len(rounds) / columns)
    width, height = _size(at, columns, rows)
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(rows, columns, squeeze=False).flat
    for number, panel in enumerate(panels):
        panel.set_axis_off()
        panel.set_aspect("equal")
        if number < len(rounds):
            if len(rounds) > 1:
                panel.set_title(f"round {number}", fontsize=11, color=EDGE)
            _panel(panel, at, rounds[number], union if shape.varies else rounds[number])
    figure.suptitle(title, fontsize=13, color=EDGE)
    target = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "taut"}):  # the same graph gives the same bytes
        figure.savefig(target, format=kind, dpi=160, metadata={"Date": None} if kind == "svg" else None)
    return target.getvalue()


def _size(at: Points, columns: int, rows: int) -> tuple[float, float]:
    """Return inches for all panels: as the workers need, within what a screen holds."""
    across = 1.5 + max(x for x, _ in at.values()) - min(x for x, _ in at.values())
    down = 1.5 + max(y for _, y in at.values()) - min(y for _, y in at.values())
    scale = min(1.0, 16 / (across * columns), 16 / (down * rows))
    return max(5.5, scale * across * columns), max(2.0, scale * (down * rows + 0.6))


def _panel(panel: Any, at: Points, graph: Graph, union: Graph) -> None:
    from matplotlib.patches import Circle

    style = {"facecolor": NODE, "edgecolor": "white", "linewidth": 1.5, "zorder": 3}
    discs = {rank: panel.add_patch(Circle(point, RADIUS, **style)) for rank, point in at.items()}
    if len(at) <= MOST_LABELLED:
        for rank, (x, y) in at.items():
            panel.text(x, y, str(rank), ha="center", va="center", color=TEXT, fontsize=10, zorder=4)
    for edge in sorted(union.edges):
        used = edge in graph.edges
        _edge(panel, at, discs, edge, EDGE if used else IDLE, used and graph.directed, _bend(at, edge, union))
    margin = 0.7
    panel.set_xlim(min(x for x, _ in at.values()) - margin, max(x for x, _ in at.values()) + margin)
    panel.set_ylim(min(y for _, y in at.values()) - margin, max(y for _, y in at.values()) + margin)


def _edge(panel: Any, at: Points, discs: dict[int, Any], edge: Edge, color: str, arrow: bool, bend: float) -> None:
    from matplotlib.patches import FancyArrowPatch

    a, b = edge
    ends: dict[str, Any] = {"patchA": discs[a], "patchB": discs[b], "shrinkA": 0, "shrinkB": int(arrow)}
    line: dict[str, Any] = {"color": color, "linewidth": 1.3, "zorder": 2 if color == EDGE else 1}
    head: dict[str, Any] = {"arrowstyle": "-|>" if arrow else "-", "mutation_scale": 12}
    panel.add_patch(FancyArrowPatch(at[a], at[b], connectionstyle=f"arc3,rad={bend}", **ends, **line, **head))


def _bend(at: Points, edge: Edge, union: Graph) -> float:
    """Return 0, or how much an edge must bow so as not to run through others: round the back of a row of the torus."""
    if len(at) > MOST_LABELLED:
        return 0.0
    (ax, ay), (bx, by) = at[edge[0]], at[edge[1]]
    length = math.hypot(bx - ax, by - ay)
    for rank, (x, y) in at.items():
        if rank in edge or not length:
            continue
        along = ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / length
        aside = abs((x - ax) * (by - ay) - (y - ay) * (bx - ax)) / length
        if 0 < along < length and aside < RADIUS:
            return 0.55 / math.sqrt(length)
    return 0.15 if union.directed and (edge[1], edge[0]) in union.edges else 0.0


Points = dict[int, tuple[float, float]]


def points(shape: Shape, graph: Graph) -> Points:
    """Return where workers stand: in a grid, by levels, around a hub, by springs (a user's graph), or in a circle.

    >>> points(Torus(2, 3), Torus(2, 3).wire(range(6)))[4]
    (1.0, -1.0)
    """
    if isinstance(shape, Matcha):
        return points(shape.base, graph)
    if isinstance(shape, Torus):
        _, columns = shape.size(len(graph.members))
        return _by_position(graph, lambda position: (float(position % columns), -float(position // columns)))
    if isinstance(shape, Tree):
        return _levels(graph, shape.branching)
    if isinstance(shape, Hypercube) and len(graph.members) <= 16:
        return _by_position(graph, _corner)
    if isinstance(shape, RandomRegular | Edges):
        return _springs(graph)
    return _rows(shape, graph)


def _rows(shape: Shape, graph: Graph) -> Points:
    """Return the points of shapes whose workers stand in their order."""
    if isinstance(shape, Line):
        return {rank: (1.2 * index, 0.0) for index, rank in enumerate(graph.members)}
    if isinstance(shape, Star):
        hub, *others = graph.members
        return {hub: (0.0, 0.0), **_circle(others)}
    return _circle(list(graph.members))


def _by_position(graph: Graph, point: Callable[[int], tuple[float, float]]) -> Points:
    return {rank: point(position) for position, rank in enumerate(ranks_by_position(graph.members))}


def _circle(ranks: list[int]) -> Points:
    """Return points on a circle, clockwise from the top."""
    radius = max(1.0, len(ranks) / 6)
    turn = 2 * math.pi / max(1, len(ranks))
    return {rank: (radius * math.sin(turn * index), radius * math.cos(turn * index)) for index, rank in enumerate(ranks)}


def _levels(graph: Graph, branching: int) -> Points:
    """Return points with leaves side by side, each parent over the middle of its children."""
    workers, at, leaves = len(graph.members), {}, 0.0

    def visit(position: int, depth: int) -> float:
        nonlocal leaves
        below = range(branching * position + 1, min(branching * position + branching + 1, workers))
        under = [visit(child, depth + 1) for child in below]
        if not under:
            leaves += 1.0
        across = (under[0] + under[-1]) / 2 if under else leaves
        at[position] = (across, -1.4 * depth)
        return across

    visit(0, 0)
    return _by_position(graph, lambda position: at[position])


_AXES = ((1.0, 0.0), (0.0, 1.0), (0.38, 0.32), (2.0, -0.45))


def _corner(position: int) -> tuple[float, float]:
    """Return the corner of a cube, or of two, drawn askew."""
    axes = [axis for bit, axis in enumerate(_AXES) if position >> bit & 1]
    return 1.6 * sum(x for x, _ in axes), 1.6 * sum(y for _, y in axes)


def _springs(graph: Graph, rounds: int = 200) -> Points:
    """Let edges pull and workers push (Fruchterman and Reingold, 1991), from a circle: the picture is always the same."""
    import numpy as np

    ranks = list(graph.members)
    size, ideal = max(1.2, len(ranks) ** 0.5 * 0.7), len(ranks) ** -0.5
    at = np.array(list(_circle(ranks).values())) / size
    wired = np.array([[other in graph.neighbour_lists[rank] for other in ranks] for rank in ranks])
    first = step = 0.1 * float(np.ptp(at, axis=0).max())
    for _ in range(rounds):
        apart = at[:, None] - at[None]
        distance = np.linalg.norm(apart, axis=-1).clip(0.01)
        force = (apart * (ideal**2 / distance**2 - wired * distance / ideal)[..., None]).sum(axis=1)
        at += step * force / np.linalg.norm(force, axis=-1, keepdims=True).clip(0.01)
        step -= first / (rounds + 1)
    at -= at.mean(axis=0)
    at *= size / max(float(np.abs(at).max()), 1e-9)
    return {rank: (float(x), float(y)) for rank, (x, y) in zip(ranks, at, strict=True)}

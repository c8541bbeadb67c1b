"""A picture of a graph, as the bytes of a PNG or SVG. For shapes that vary, a panel for each round."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

from taut.topologies.graph import Edge, Graph
from taut.topologies.layout import Places, places
from taut.topologies.shape import Shape

NODE, TEXT, EDGE, IDLE = "#1f5f8b", "#ffffff", "#3c4650", "#d5dae0"
RADIUS = 0.24
MOST_LABELLED = 100


def draw(shape: Shape, rounds: Sequence[Graph], title: str, kind: str) -> bytes:
    """The graphs of some rounds, one picture.

    Arguments:
        rounds: one graph, or of a shape that varies one for each round to show; each over the same members.
        kind: ``png`` or ``svg``.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    union = shape.union(rounds[0].members)
    at = places(shape, union)
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


def _size(at: Places, columns: int, rows: int) -> tuple[float, float]:
    """Inches for all panels: as the places need, within what a screen holds."""
    across = 1.5 + max(x for x, _ in at.values()) - min(x for x, _ in at.values())
    down = 1.5 + max(y for _, y in at.values()) - min(y for _, y in at.values())
    scale = min(1.0, 16 / (across * columns), 16 / (down * rows))
    return max(5.5, scale * across * columns), max(2.0, scale * (down * rows + 0.6))


def _panel(panel: Any, at: Places, graph: Graph, union: Graph) -> None:
    from matplotlib.patches import Circle

    style = {"facecolor": NODE, "edgecolor": "white", "linewidth": 1.5, "zorder": 3}
    discs = {rank: panel.add_patch(Circle(place, RADIUS, **style)) for rank, place in at.items()}
    if len(at) <= MOST_LABELLED:
        for rank, (x, y) in at.items():
            panel.text(x, y, str(rank), ha="center", va="center", color=TEXT, fontsize=10, zorder=4)
    for edge in sorted(union.edges):
        used = edge in graph.edges
        _edge(panel, at, discs, edge, EDGE if used else IDLE, used and graph.directed, _bend(at, edge, union))
    margin = 0.7
    panel.set_xlim(min(x for x, _ in at.values()) - margin, max(x for x, _ in at.values()) + margin)
    panel.set_ylim(min(y for _, y in at.values()) - margin, max(y for _, y in at.values()) + margin)


def _edge(panel: Any, at: Places, discs: dict[int, Any], edge: Edge, colour: str, arrow: bool, bend: float) -> None:
    from matplotlib.patches import FancyArrowPatch

    patch = FancyArrowPatch(
        at[edge[0]],
        at[edge[1]],
        arrowstyle="-|>" if arrow else "-",
        mutation_scale=12,
        connectionstyle=f"arc3,rad={bend}",
        patchA=discs[edge[0]],
        patchB=discs[edge[1]],
        shrinkA=0,
        shrinkB=1 if arrow else 0,
        color=colour,
        linewidth=1.3,
        zorder=2 if colour == EDGE else 1,
    )
    panel.add_patch(patch)


def _bend(at: Places, edge: Edge, union: Graph) -> float:
    """0, or how much an edge must bow so as not to run through others: round the back of a row of the torus, say."""
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

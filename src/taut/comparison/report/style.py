"""The style of charts: colours that everybody can tell apart, labels at the lines, one picture for paper and screen.

A chart is made as PNG for files and as SVG for the page. In the SVG, text and axes take the page's text colour, so that
they are readable on a dark page too.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

# Okabe and Ito's palette, which people with any kind of colour blindness can tell apart, but for its black, which is the
# text's, and its yellow, which cannot be seen on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)))
INK, FAINT = "#1b1f24", "#8c959f"
INCH_WIDTH, INCH_HEIGHT = 5.4, 3.3
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": FAINT,
    "grid.alpha": 0.25,
    "svg.fonttype": "none",  # letters stay letters: they can be searched, and follow the page
    "svg.hashsalt": "taut",  # the same chart, the same bytes
}
LABEL_GAP = 0.062  # of the axes' height, between the labels of two lines


@dataclass(frozen=True)
class Chart:
    """A picture with its caption. ``png`` and ``svg`` are None where nothing is drawn; ``caption`` then says why."""

    name: str
    title: str
    caption: str
    png: bytes | None = None
    svg: str | None = None


@dataclass(frozen=True)
class ConfigurationStyle:
    """The look of one configuration, the same in all charts."""

    color: str
    marker: str
    dash: Any


def look(index: int) -> ConfigurationStyle:
    """Return the look of the configuration with this index.

    >>> look(0).color != look(1).color and look(0) != look(6)
    True
    """
    around = index // len(PALETTE)
    return ConfigurationStyle(
        PALETTE[index % len(PALETTE)], MARKERS[(index + around) % len(MARKERS)], DASHES[around % len(DASHES)]
    )


def drawn(
    name: str, title: str, caption: str, panels: int, draw: Callable[[Sequence[Any]], None], **size: float
) -> Chart:
    """Draw a chart of some panels, one below the other: ``draw`` is given their axes. ``size``: the ``height`` of a panel
    and of what is added once (``extra``), in inches; ``sharex``: all have one x axis."""
    import matplotlib as mpl

    mpl.use("Agg")  # no window, on machines without a screen too
    from matplotlib import pyplot

    with mpl.rc_context(STYLE):
        height = panels * size.get("height", INCH_HEIGHT) + size.get("extra", 0.0)
        figure, grid = pyplot.subplots(
            panels, 1, figsize=(INCH_WIDTH, height), layout="constrained", squeeze=False, sharex=bool(size.get("sharex"))
        )
        try:
            draw([row[0] for row in grid])
            png, svg = io.BytesIO(), io.StringIO()
            figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
            figure.suptitle(title, x=0.01, ha="left", fontsize=11)  # the page has it as a heading
            figure.savefig(png, format="png", dpi=160, facecolor="white", metadata={"Software": None})
        finally:
            pyplot.close(figure)
    return Chart(name, title, caption, png.getvalue(), inline(svg.getvalue(), name, escape(title)))


def inline(svg: str, name: str, title: str) -> str:
    """Turn the SVG into a part of a page: without addresses of other places, with identities of its own and the page's
    colours.

    >>> inline('<?xml?><svg id="a" xmlns="http://x" width="3pt" viewBox="0 0 3 2"><use href="#a"/></svg>', "c", "T")
    '<svg role="img" aria-label="T" id="c-a" viewBox="0 0 3 2"><use href="#c-a"/></svg>'
    """
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\s(xmlns(:\w+)?|version)="[^"]*"', "", svg)
    svg = re.sub(r'\s(width|height)="[\d.]+pt"', "", svg, count=2)  # as wide as the page lets it be
    svg = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]*)\)", rf"url(#{name}-\1)", svg)
    svg = re.sub(r'(xlink:)?href="#([^"]*)"', rf'href="#{name}-\2"', svg)
    svg = svg.replace(INK, "currentColor")
    return svg.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)


def label_ends(axes: Any, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write names to the right of the axes at these heights (in data), each in its color, none over another."""
    if not ends:
        return
    axes.figure.canvas.draw()  # fixes the limits
    to_screen, from_screen = axes.transData.transform, axes.transAxes.inverted().transform
    heights = [float(from_screen(to_screen((axes.get_xlim()[1], height)))[1]) for height, _, _ in ends]
    for (_, text, color), height in zip(ends, spread_out(heights), strict=True):
        axes.annotate(
            text, (1.0, height), xycoords="axes fraction", xytext=(4, 0), textcoords="offset points",
            va="center", ha="left", color=color, fontsize=8, annotation_clip=False,
        )  # fmt: skip


def spread_out(heights: Sequence[float], gap: float = LABEL_GAP) -> list[float]:
    """Move the heights so that they are ``gap`` apart, in the same order, between 0 and 1 (closer if they do not fit).

    >>> spread_out([0.5, 0.5, 0.875], gap=0.25)
    [0.375, 0.625, 0.9375]
    """
    gap = min(gap, 1.0 / max(1, len(heights) - 1))
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    upward = _pushed([heights[index] for index in order], gap)
    downward = [-height for height in reversed(_pushed([-heights[index] for index in reversed(order)], gap))]
    between = [(up + down) / 2 for up, down in zip(upward, downward, strict=True)]  # still apart, as both are
    above = _pushed([max(0.0, height) for height in between], gap)
    within = [1.0 - height for height in reversed(_pushed([max(0.0, 1.0 - height) for height in reversed(above)], gap))]
    placed = [0.0] * len(heights)
    for index, height in zip(order, within, strict=True):
        placed[index] = height
    return placed


def _pushed(rising: Sequence[float], gap: float) -> list[float]:
    found: list[float] = []
    for height in rising:
        found.append(max(height, found[-1] + gap) if found else height)
    return found

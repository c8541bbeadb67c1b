"""The picture of ``compression.py``: quality against compression, a panel for each task and strategy, up is better."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compression_page import Cell

# Families share a colour, codecs have a marker.
STYLES = {
    "dense": ("black", "*"),
    "fp16": ("tab:gray", "^"),
    "bf16": ("tab:gray", "v"),
    "int8": ("tab:gray", "s"),
    "fp8": ("tab:gray", "D"),
    "qsgd": ("tab:brown", "s"),
    "terngrad": ("tab:brown", "D"),
    "onebit": ("tab:orange", "s"),
    "sign": ("tab:orange", "^"),
    "topk": ("tab:blue", "o"),
    "dgc": ("tab:blue", "D"),
    "randomk": ("tab:cyan", "v"),
    "powersgd": ("tab:purple", "P"),
    "demo": ("tab:pink", "X"),
    "threshold": ("tab:green", "o"),
    "tether": ("tab:red", "o"),
}
# Of each task and strategy, its panel.
TITLES = {
    ("mnist", "sync"): "MNIST MLP, 4 workers: sync",
    ("mnist", "async"): "MNIST MLP, 4 workers: async full, ssp:0 (in lock-step) hollow",
    ("mnist", "ssp:0"): "MNIST MLP, 4 workers: async full, ssp:0 (in lock-step) hollow",
    ("text", "sync"): "Character transformer, 4 workers: sync full, async hollow",
    ("text", "async"): "Character transformer, 4 workers: sync full, async hollow",
}
HOLLOW = (("mnist", "ssp:0"), ("text", "async"))
ACCURACIES = (98.5, 98, 97.5, 97, 96, 95, 93, 90, 85, 80, 70, 50, 30, 10)
LETTER, LINE = 5.4, 11.0  # pixels at 100 per inch, of a small font
Box = tuple[float, float, float, float]  # left, bottom, right, top


def draw(found: Sequence[Cell], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in sorted(found, key=lambda cell: (cell.case.task, cell.case.strategy != "sync")):
        task, strategy = cell.case.task, cell.case.strategy
        groups.setdefault((task, TITLES[task, strategy]), []).append(cell)
    figure, axes = pyplot.subplots(len(groups), 1, figsize=(12, 6 * len(groups)), dpi=100, squeeze=False)
    panels = list(zip(axes[:, 0], groups.items(), strict=True))
    for one, ((task, title), here) in panels:
        _panel(one, task, title, here)
    figure.tight_layout()
    for one, (_, here) in panels:  # where markers are is known only now
        _label(one, [cell for cell in here if not math.isnan(cell.mean)])
    figure.savefig(path)
    pyplot.close(figure)


def height(cell: Cell, value: float) -> float:
    """On the axis: errors in percent, or the loss; both upside down, so that up is better."""
    return 100.0 - value if cell.case.task == "mnist" else value


def _panel(axes: Any, task: str, title: str, found: Sequence[Cell]) -> None:
    for cell in found:
        if math.isnan(cell.mean):
            continue
        colour, marker = STYLES.get(cell.case.name, ("black", "."))
        low, high = (height(cell, value) for value in sorted(cell.spread, key=lambda value: height(cell, value)))
        y = height(cell, cell.mean)
        full = (task, cell.case.strategy) not in HOLLOW
        axes.errorbar(
            [cell.ratio],
            [y],
            [[y - low], [high - y]],
            fmt=marker,
            color=colour,
            markerfacecolor=colour if full else "white",
            markersize=7 if marker != "*" else 12,
            elinewidth=0.8,
            alpha=0.9,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.invert_yaxis()
    axes.minorticks_off()
    axes.grid(alpha=0.25)
    axes.margins(0.06, 0.08)
    axes.set_title(title, loc="left")
    gone = [short(cell.case.codec) for cell in found if math.isnan(cell.mean)]
    if gone:
        axes.text(0.01, 0.02, f"diverged: {', '.join(gone)}", transform=axes.transAxes, fontsize=8, wrap=True)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.set_xlabel("times fewer bytes than dense float32 updates to every peer at every step")
    if task == "mnist":
        bottom, top = axes.get_ylim()
        ticks = [each for each in ACCURACIES if top <= 100 - each <= bottom]
        axes.set_yticks([100 - each for each in ticks], [f"{each:g}%" for each in ticks])
        axes.set_ylabel("accuracy (logarithm of the errors)")
    else:
        bottom, top = axes.get_ylim()
        ticks = [tick / 10 for tick in range(10, 60) if top <= tick / 10 <= bottom]
        axes.set_yticks(ticks, [f"{each:g}" for each in ticks])
        axes.set_ylabel("validation loss, nats")


def short(codec: str) -> str:
    """As it stands beside a marker.

    >>> short("topk:density=0.001,feedback=no"), short("powersgd:rank=2"), short("threshold:tau=2^-8")
    ('topk 0.1% no feedback', 'powersgd r2', 'threshold τ 2^-8')
    """
    name, _, rest = codec.partition(":")
    words = [name]
    for part in rest.split(",") if rest else ():
        key, _, value = part.partition("=")
        if key == "density":
            words.append(f"{100 * float(value):g}%")
        elif value == "no":
            words.append(f"no {key}" if key == "feedback" else "")
        else:
            words.append(
                {"rank": "r{}", "tau": "τ {}", "levels": "{} levels", "warmup": "warm-up {}"}.get(
                    key, key + " {}"
                ).format(value)
            )
    return " ".join(word for word in words if word)


def _label(axes: Any, found: Sequence[Cell]) -> None:
    """Each label at the first of several places round its marker where nothing else is; where there is none, at the one
    with the least beneath it."""
    at = [tuple(axes.transData.transform((cell.ratio, height(cell, cell.mean)))) for cell in found]
    frame = axes.get_window_extent()
    taken: list[Box] = [(x - 5, y - 5, x + 5, y + 5) for x, y in at]
    for cell, (x, y) in sorted(zip(found, at, strict=True), key=lambda each: -each[1][1]):
        text = short(cell.case.codec)
        best = min(_places(x, y, LETTER * len(text)), key=lambda box: _crowding(box, taken, frame, x, y))
        taken.append(best)
        colour = STYLES.get(cell.case.name, ("black", "."))[0]
        left, bottom, right, top = best
        near = abs((bottom + top) / 2 - y) < 14 and min(abs(left - x), abs(right - x), abs((left + right) / 2 - x)) < 12
        axes.annotate(
            text,
            (x, y),
            ((left + right) / 2, (bottom + top) / 2),
            xycoords="figure pixels",
            textcoords="figure pixels",
            ha="center",
            va="center",
            fontsize=7,
            color=colour,
            arrowprops=None if near else {"arrowstyle": "-", "color": colour, "lw": 0.4, "alpha": 0.6, "shrinkB": 3},
        )


def _places(x: float, y: float, width: float) -> Iterable[Box]:
    for far, (dx, dy) in itertools.product((9, 18, 30, 45, 65, 90), itertools.product((1, -1, 0), (0, 1, -1, 2, -2))):
        if dx == dy == 0:
            continue
        left = x + dx * far - (0 if dx > 0 else width if dx < 0 else width / 2)
        bottom = y + dy * far * 0.8 - LINE / 2
        yield (left, bottom, left + width, bottom + LINE)


def _crowding(box: Box, taken: Sequence[Box], frame: Any, x: float, y: float) -> float:
    """The area that is covered twice, far above all; then the distance."""
    left, bottom, right, top = box
    covered = sum(
        max(0.0, min(right, b[2]) - max(left, b[0])) * max(0.0, min(top, b[3]) - max(bottom, b[1])) for b in taken
    )
    outside: bool = left < frame.x0 or right > frame.x1 or bottom < frame.y0 or top > frame.y1
    distance = math.hypot((left + right) / 2 - x, (bottom + top) / 2 - y)
    return 1000.0 * covered + 1e6 * outside + distance

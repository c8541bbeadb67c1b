"""Figures of a run as PNG or SVG: the loss and the speed of each worker, and what its time went into."""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from taut.analysis.intervals import Interval, intervals
from taut.analysis.tables import read_table
from taut.comparison.report.style import STYLE, look
from taut.core.files import AtomicFile
from taut.core.messages import TIME_PARTS
from taut.errors import Misuse
from taut.supervisor.storage.store_reader import StoredRun

KINDS = ("png", "svg", "pdf")
INCH_WIDTH, INCH_HEIGHT = 7.5, 2.5  # of one panel
MOST_LABELLED = 12  # workers with a line of their own in the legend
POINTS = 400  # in a line


def write_figure(run: StoredRun, path: Path) -> None:
    """Write the figure of a run into a file whose name ends in one of ``KINDS``."""
    kind = path.suffix.lstrip(".").lower()
    if kind not in KINDS:
        raise Misuse(f"a figure in {str(path)!r}", f"a name that ends in .{', .'.join(KINDS)}", f"{path.stem}.png")
    data = io.BytesIO()
    figure = draw(run)
    import matplotlib as mpl

    with mpl.rc_context(STYLE):  # letters of an SVG stay letters
        figure.savefig(data, format=kind, dpi=150, facecolor="white")
    with AtomicFile(path) as file:
        file.write(data.getvalue())


def draw(run: StoredRun) -> Any:
    """Return the figure of a run, a ``matplotlib.figure.Figure``: loss, speed and time split, and below them what the
    script has logged."""
    if find_spec("matplotlib") is None:
        raise Misuse("a figure without matplotlib", "matplotlib", "pip install 'taut[demo]'")
    began, ended = run.summary.started, max((record.time for record in run.statistics), default=run.summary.started)
    found = intervals(run.statistics, began, least_s=(ended - began) / POINTS)
    if not found:
        raise Misuse(f"run {run.summary.name!r}", "a run with statistics", "no worker has trained in it so far")
    metrics = _metrics(run)
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        panels = 3 + len(metrics)
        figure = _figure_type()(figsize=(INCH_WIDTH, INCH_HEIGHT * panels), layout="constrained")
        axes = figure.subplots(panels, 1, squeeze=False)[:, 0]
        figure.suptitle(f"{run.summary.name}: {run.settings.get('strategy', '')}", x=0.01, ha="left", fontsize=11)
        _lines(axes[0], {rank: [(one.end_s, one.loss) for one in each] for rank, each in found.items()}, "loss")
        speeds = {rank: [(one.end_s, one.samples_per_s) for one in each] for rank, each in found.items()}
        _lines(axes[1], speeds, "samples per second")
        axes[1].set_ylim(bottom=0)
        for axis, (name, lines) in zip(axes[2:-1], metrics.items(), strict=True):
            _lines(axis, lines, name, "steps")
        _split(axes[-1], found)
    return figure


@functools.cache
def _figure_type() -> Any:
    """Return matplotlib's figure with a picture for notebooks, which show a figure of pyplot only."""
    from matplotlib.figure import Figure

    class RunFigure(Figure):
        def _repr_png_(self) -> bytes:
            data = io.BytesIO()
            self.savefig(data, format="png", dpi=100, facecolor="white")
            return data.getvalue()

    return RunFigure


def _metrics(run: StoredRun) -> dict[str, dict[int, list[tuple[float, float | None]]]]:
    found: dict[str, dict[int, list[tuple[float, float | None]]]] = {}
    for row in read_table(run.summary.path, "metrics").rows():
        found.setdefault(row["name"], {}).setdefault(row["rank"], []).append((row["step"], row["value"]))
    return found


def _lines(
    axes: Any, lines: Mapping[int, Sequence[tuple[float, float | None]]], name: str, over: str = "seconds"
) -> None:
    for index, (rank, points) in enumerate(sorted(lines.items())):
        known = [(time_s, value) for time_s, value in points if value is not None]
        label = f"worker {rank}" if index < MOST_LABELLED else None
        marker = "o" if len(known) == 1 else ""
        axes.plot(*zip(*known, strict=True) if known else ((), ()), label=label, color=look(index).color,
                  linestyle=look(index).dash, marker=marker, linewidth=1.2)  # fmt: skip
    axes.set(xlabel=over, ylabel=name)
    axes.grid(visible=True)
    axes.legend(fontsize=7, ncols=2, frameon=False)


def _split(axes: Any, found: Mapping[int, Sequence[Interval]]) -> None:
    """Draw a bar for each worker: the share of its time in each part of the work."""
    ranks = sorted(found)
    lengths = {rank: [one.end_s - one.begin_s for one in found[rank]] for rank in ranks}
    left = [0.0] * len(ranks)
    for index, part in enumerate(TIME_PARTS):
        shares = [
            sum(length * one.split[index] for length, one in zip(lengths[rank], found[rank], strict=True))
            / sum(lengths[rank])
            for rank in ranks
        ]
        axes.barh(range(len(ranks)), [100 * share for share in shares], left=left, label=part, color=look(index).color)
        left = [before + 100 * share for before, share in zip(left, shares, strict=True)]
    axes.set(xlabel="% of the time", xlim=(0, 100), yticks=range(len(ranks)), yticklabels=[f"worker {r}" for r in ranks])
    axes.invert_yaxis()
    axes.legend(fontsize=7, ncols=len(TIME_PARTS), frameon=False, loc="lower left", bbox_to_anchor=(0, 1))

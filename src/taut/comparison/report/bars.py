"""The charts with bars: time to target, time split per worker, staleness, consensus distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from taut.comparison.report.chart_data import ChartData, Series, distance_curve
from taut.comparison.report.labels import seconds, workers
from taut.comparison.report.style import FAINT, Chart, drawn
from taut.comparison.runs.record import RunRecord
from taut.core.messages import TIME_PARTS

PART_COLORS = ("#0072B2", "#E69F00", "#CC79A7", "#D55E00", "#009E73", "#56B4E9", FAINT)
MOST_BARS = 16
BINS = 30


def to_target(data: ChartData) -> Chart:
    """Draw how long each configuration took to reach the target."""
    name, title, target = "time-to-target", "Time to target", data.made.target
    if target is None:
        return Chart(name, title, "Not drawn: no target was given, as in --target 0.95.")
    title = f"Time to {target}"
    rows = sorted(data.rows(), key=lambda row: (row["time_to_target_s"] is None, row["time_to_target_s"] or 0.0))
    if all(row["time_to_target_s"] is None for row in rows):
        return Chart(name, title, "Not drawn: no configuration reached it with every seed.")

    def draw(panels: Sequence[Any]) -> None:
        axes = panels[0]
        for index, row in enumerate(rows):
            value = row["time_to_target_s"]
            axes.barh(index, value or 0.0, color=data.look(row).color, height=0.7)
            missed = f"not reached ({row['reached']} of {row['runs'] - row['failed']})"
            at_end = " at its end" if row["target_known_at_end_only"] else ""
            text = missed if value is None else seconds(value) + at_end
            axes.annotate(text, (value or 0.0, index), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
        axes.set_yticks(range(len(rows)), [data.label(row, with_workers=len(data.counts) > 1) for row in rows])
        axes.invert_yaxis()
        axes.margins(x=0.25)
        axes.set(xlabel=f"{data.virtual}seconds of training")
        axes.grid(True, axis="x")

    caption = "Means over seeds; a configuration has reached the target only if every seed has."
    if len(data.counts) > 1:
        caption += " The number after a name is that of workers."
    if any(row["target_known_at_end_only"] for row in rows):
        caption += " Where it says so, the score was measured at the end only, and may have been good enough before."
    return drawn(name, title, caption, 1, draw, height=0.9 + 0.24 * len(rows))


def time_split(data: ChartData) -> Chart:
    """Draw where each worker's time went, with the most workers."""
    count = data.counts[-1]
    title = f"Time split per worker, {workers(count)}"
    shown = {which: run for which in data.labels if (run := _first_split(data, which, count)) is not None}
    if not shown:
        return Chart("time-split", title, "Not drawn: no run says where its time went.")
    ranks = _some(max(len(run.time_split) for run in shown.values()))

    def draw(panels: Sequence[Any]) -> None:
        for axes, (which, run) in zip(panels, shown.items(), strict=True):
            for index, rank in enumerate(rank for rank in ranks if rank < len(run.time_split)):
                _stack(axes, index, run.time_split[rank])
            axes.set_yticks(range(len(ranks)), [str(rank) for rank in ranks], fontsize=7)
            axes.invert_yaxis()
            axes.set_xlim(0, 100)
            axes.set_title(data.labels[which], loc="left", fontsize=8.5)
            axes.set_ylabel("worker", fontsize=8)
        panels[-1].set_xlabel("percent of the worker's time")
        handles, labels = panels[0].get_legend_handles_labels()
        panels[0].figure.legend(handles, labels, loc="outside lower left", ncols=4, frameon=False, fontsize=8)

    caption = f"Of the run with seed {next(iter(shown.values())).seed}."
    if len(ranks) < max(len(run.time_split) for run in shown.values()):
        caption += f" Some of the workers, from the first to the last: {len(ranks)} of them."
    height = 0.5 + 0.14 * len(ranks)
    return drawn("time-split", title, caption, len(shown), draw, height=height, extra=1.1, sharex=1)


def _first_split(data: ChartData, which: Series, count: int) -> RunRecord | None:
    return next((run for run in data.runs(which, count) if any(sum(one.values()) > 0 for one in run.time_split)), None)


def _some(number: int) -> list[int]:
    """Return the ranks to show: all, or evenly some.

    >>> _some(3), len(_some(1000)), _some(1000)[-1]
    ([0, 1, 2], 16, 999)
    """
    if number <= MOST_BARS:
        return list(range(number))
    return [round(index * (number - 1) / (MOST_BARS - 1)) for index in range(MOST_BARS)]


def _stack(axes: Any, index: int, split: dict[str, float]) -> None:
    whole, left = sum(split.values()) or 1.0, 0.0
    for part, color in zip((*TIME_PARTS, "other"), PART_COLORS, strict=True):
        share = 100 * split.get(part, 0.0) / whole
        axes.barh(index, share, left=left, color=color, height=0.8, label=part if index == 0 else "_")
        left += share


def staleness(data: ChartData) -> Chart:
    """Draw how late updates were, with the most workers."""
    count = data.counts[-1]
    title = f"Staleness of updates, {workers(count)}"
    found = {
        which: [value for run in data.runs(which, count) for value in run.staleness_samples] for which in data.labels
    }
    late = {which: values for which, values in found.items() if any(value > 0 for value in values)}
    on_time = [data.labels[which] for which, values in found.items() if values and which not in late]
    never = f" Without any: {', '.join(on_time)}." if on_time else ""
    if not late:
        return Chart("staleness", title, f"Not drawn: no run measured any.{never}")
    bins = np.linspace(0.0, max(max(values) for values in late.values()), BINS + 1)

    def draw(panels: Sequence[Any]) -> None:
        for axes, (which, values) in zip(panels, late.items(), strict=True):
            weights = np.full(len(values), 100.0 / len(values))
            axes.hist(values, bins=bins, weights=weights, color=data.looks[which].color)
            axes.set_title(f"{data.labels[which]} (mean {sum(values) / len(values):.2f})", loc="left", fontsize=8.5)
            axes.set_ylabel("%", fontsize=8)
        panels[-1].set_xlabel("steps between an update's making and its reaching the others")

    caption = (
        f"Percent of the workers' readings, all seeds together; each is smoothed over a worker's last updates.{never}"
    )
    return drawn("staleness", title, caption, len(late), draw, height=1.05, extra=0.6, sharex=1)


def consensus(data: ChartData) -> Chart:
    """Draw how far replicas are from their mean, with the most workers: on the way, or else at the end."""
    count = data.counts[-1]
    name, title = "consensus", f"Consensus distance, {workers(count)}"
    lines = {which: line for which in data.labels if (line := distance_curve(data.runs(which, count))) is not None}
    if lines:
        return _consensus_over_time(data, name, title, lines)
    rows = [row for row in data.rows(count) if row["consensus_distance"] is not None]
    apart = [row for row in rows if row["consensus_distance"] > 0]
    if not apart or count == 1:
        return Chart(name, title, "Not drawn: " + ("no run measured it." if not rows else "all replicas were equal."))

    def draw(panels: Sequence[Any]) -> None:
        axes = panels[0]
        for index, row in enumerate(rows):
            value = row["consensus_distance"]
            if value > 0:
                axes.plot(value, index, data.look(row).marker, color=data.look(row).color)
                axes.annotate(
                    f"{value:.2g}", (value, index), xytext=(7, 0), textcoords="offset points", va="center", fontsize=8
                )
            else:
                axes.annotate("0: all equal", (0.02, index), xycoords=("axes fraction", "data"), va="center", fontsize=8)
        axes.set_yticks(range(len(rows)), [data.label(row) for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        values = [row["consensus_distance"] for row in apart]
        if max(values) / min(values) > 10:
            axes.set_xscale("log")
        axes.margins(x=0.3)
        axes.set(xlabel="distance from the mean of all replicas, relative to its norm")
        axes.grid(True, axis="x")

    caption = "At the end of training, before any averaging; means over seeds."
    return drawn(name, title, caption, 1, draw, height=0.9 + 0.26 * len(rows))


def _consensus_over_time(data: ChartData, name: str, title: str, lines: dict[Series, Any]) -> Chart:
    def draw(panels: Sequence[Any]) -> None:
        axes = panels[0]
        data.plot(axes, lines)
        axes.set(xlabel=f"{data.virtual}seconds of training", ylabel="distance / norm of the mean")
        data.name_ends(axes, {which: line.mean[-1] for which, line in lines.items()})

    caption = "Root mean square distance of the replicas from their mean, relative to its norm; means over seeds."
    return drawn(name, title, caption, 1, draw)

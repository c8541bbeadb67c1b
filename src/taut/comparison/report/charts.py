"""The charts over time, over bytes and over workers."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from taut.comparison.report.bars import consensus, staleness, time_split, to_target
from taut.comparison.report.chart_data import ChartData, Over, curve, has_curves
from taut.comparison.report.labels import workers
from taut.comparison.report.style import FAINT, INCH_HEIGHT, INK, Chart, drawn, label_ends
from taut.comparison.report.table import series
from taut.comparison.runs.comparison import Comparison
from taut.comparison.runs.target import Metric

CALLED = {"score": "validation score", "loss": "training loss"}
TIME_UNITS = ((7_200.0, 3_600.0, "hours"), (180.0, 60.0, "minutes"), (1.0, 1.0, "seconds"), (0.0, 1e-3, "milliseconds"))
BYTE_UNITS = ((2e9, 1e9, "GB"), (2e6, 1e6, "MB"), (0.0, 1e3, "kB"))
LOG_FROM = 30.0  # times between the smallest and the largest, from which an axis is logarithmic


def charts(made: Comparison) -> list[Chart]:
    """Draw all charts; those that cannot be drawn say why."""
    if find_spec("matplotlib") is None:
        return [Chart("charts", "Charts", "matplotlib is missing, so nothing is drawn: pip install 'taut[demo]'.")]
    data = ChartData(made)
    if not data.finished:
        return [Chart("charts", "Charts", "No run finished, so there is nothing to draw.")]
    efficiency = "efficiency (speed-up per worker)"
    return [
        _quality(data, "time", "quality-time", "against time"),
        _quality(data, "bytes", "quality-bytes", "against bytes sent"),
        _result(data, "time", "result-time", "against time"),
        _result(data, "bytes", "result-bytes", "against bytes sent"),
        to_target(data),
        _scaling(data, "speed_up", "speed-up", "Speed-up against workers", "speed-up (times)"),
        _scaling(data, "efficiency", "efficiency", "Efficiency against workers", efficiency),
        time_split(data),
        staleness(data),
        consensus(data),
    ]


def unit_of(most: float, units: Sequence[tuple[float, float, str]]) -> tuple[float, str]:
    """Return the unit for values up to ``most``.

    >>> unit_of(600.0, TIME_UNITS), unit_of(3e6, BYTE_UNITS)
    ((60.0, 'minutes'), (1000000.0, 'MB'))
    """
    return next((unit, name) for least, unit, name in units if most >= least)


def _quality(data: ChartData, over: Over, name: str, against: str) -> Chart:
    metric: Metric = data.metric if has_curves(data.finished, data.metric) else "loss"
    title = f"{CALLED[metric].capitalize()} {against}"
    if not has_curves(data.finished, metric):
        return Chart(name, title, f"Not drawn: the {CALLED[metric]} on the way is not known of every run.")
    lines = {
        (which, count): found
        for which in data.labels
        for count in data.panels
        if (found := curve(data.runs(which, count), metric, over)) is not None
    }
    if not lines:
        return Chart(
            name, title, "Not drawn: nothing was sent." if over == "bytes" else "Not drawn: the runs were too short."
        )
    shown = [count for count in data.panels if any(some == count for _, some in lines)]
    unit, axis = _axis(data, over, max(line.x[-1] for line in lines.values()))

    def draw(panels: Sequence[Any]) -> None:
        for axes, count in zip(panels, shown, strict=True):
            here = {which: line for (which, some), line in lines.items() if some == count}
            data.plot(axes, here, unit)
            _labelled(axes, axis, metric, count)
            _logarithmic(axes, metric, over, list(here.values()))
            data.name_ends(axes, {which: line.mean[-1] for which, line in here.items()})

    caption = "Lines are means over seeds, as far as all of them go; bands reach from the lowest to the highest seed."
    if metric == "loss":
        caption += " The loss is that of single batches, smoothed."
    if data.metric == "score" and metric == "loss":
        caption += " The validation score is known at the end only, so the training loss is shown."
    return drawn(name, title, caption, len(shown), draw, height=_height(data))


def _axis(data: ChartData, over: Over, most: float) -> tuple[float, str]:
    unit, called = unit_of(most, TIME_UNITS if over == "time" else BYTE_UNITS)
    return unit, f"{data.virtual}{called} of training" if over == "time" else f"{called} sent, all workers together"


def _labelled(axes: Any, axis: str, metric: Metric, count: int) -> None:
    axes.set(xlabel=axis, ylabel=CALLED[metric])
    axes.set_title(workers(count), loc="left")
    axes.grid(True)


def _logarithmic(axes: Any, metric: Metric, over: Over, lines: Sequence[Any]) -> None:
    lowest = min((line.low.min() for line in lines), default=0.0)
    if metric == "loss" and lowest > 0 and max(line.high.max() for line in lines) / lowest > LOG_FROM / 3:
        axes.set_yscale("log")
    if over == "bytes" and lines:
        ends = [line.x[-1] for line in lines]
        if max(ends) / min(ends) > LOG_FROM / 3:
            axes.set_xscale("log")


def _result(data: ChartData, over: Over, name: str, against: str) -> Chart:
    metric, x = data.metric, "wall_s" if over == "time" else "bytes_sent"
    title = f"{'Final' if metric == 'score' else 'Last'} {CALLED[metric]} {against}"
    rows = [row for row in data.rows() if row[metric] is not None and row[x] is not None and (row[x] or over == "time")]
    if not rows:
        lacking = "" if over == "time" else " and bytes sent"
        return Chart(name, title, f"Not drawn: no run has a {CALLED[metric]}{lacking}.")
    unit, axis = _axis(data, over, max(row[x] for row in rows))
    shown = [count for count in data.panels if any(row["workers"] == count for row in rows)]

    def draw(panels: Sequence[Any]) -> None:
        for axes, count in zip(panels, shown, strict=True):
            here = [row for row in rows if row["workers"] == count]
            for row in here:
                style, runs = data.look(row), data.runs(series(row), count)
                each = [
                    (getattr(run, x) / unit, getattr(run, metric)) for run in runs if getattr(run, metric) is not None
                ]
                axes.plot(*zip(*each, strict=True), ".", color=style.color, markersize=4, alpha=0.6)
                axes.plot(row[x] / unit, row[metric], style.marker, color=style.color, markersize=6)
            values = [row[x] for row in here]
            if max(values) / min(values) > LOG_FROM / 3:
                axes.set_xscale("log")
            axes.margins(x=0.1, y=0.1)
            _labelled(axes, axis, metric, count)
            data.name_ends(axes, {series(row): row[metric] for row in here})

    caption = "Large marks are means over seeds, dots the single runs. The names are at the heights of their marks."
    return drawn(name, title, caption, len(shown), draw, height=_height(data))


def _scaling(data: ChartData, column: str, name: str, title: str, ylabel: str) -> Chart:
    if len(data.counts) < 2:
        return Chart(name, title, "Not drawn: it takes at least two numbers of workers, as in --workers 1,2,4.")
    lines = {
        which: sorted(
            (row["workers"], row[column]) for row in data.rows() if series(row) == which and row[column] is not None
        )
        for which in data.labels
    }
    lines = {which: points for which, points in lines.items() if points}

    def draw(panels: Sequence[Any]) -> None:
        axes = panels[0]
        ideal = data.counts if column == "speed_up" else [1.0] * len(data.counts)
        axes.plot(data.counts, ideal, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
        for which, points in lines.items():
            style = data.looks[which]
            axes.plot(
                *zip(*points, strict=True), color=style.color, marker=style.marker, linestyle=style.dash, markersize=4.5
            )
        if data.counts[-1] / data.counts[0] > LOG_FROM / 3:
            axes.set_xscale("log", base=2)
        axes.set_xticks(data.counts, [str(count) for count in data.counts])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set(xlabel="workers", ylabel=ylabel)
        axes.grid(True)
        ends = [(points[-1][1], data.labels[which], data.looks[which].color) for which, points in lines.items()]
        label_ends(axes, [*ends, (ideal[-1], "ideal", INK)])

    base = "one worker" if data.counts[0] == 1 else f"{workers(data.counts[0])}, taken as perfectly efficient"
    caption = f"Samples per second of all workers together, against the same choices with {base}."
    return drawn(name, title, caption, 1, draw, height=_height(data))


def _height(data: ChartData) -> float:
    return max(INCH_HEIGHT, 0.8 + 0.17 * len(data.labels))

"""What the race's runs say: the figures of a run, their medians, the bars, the tables and the picture."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from peers.task import TASKS
from peers.ways import ASYNC, BOUND, DDP, SYNC, WAYS
from race_lab import KILLED, WORLD, Cell, Log, Run
from report import Row, row

WARM_STEPS = 10
PAUSE_AFTER_S = 10.0  # a pause that lasts until the end of the run and longer than this: the worker stands still
Runs = dict[str, list[dict[str, Any]]]
LINK_LABELS = {
    "100mbit": "100 Mbit/s",
    "1gbit": "1 Gbit/s",
    "unlimited": "unlimited",
    "100mbit-20ms": "100 Mbit/s, round trip 20 ms",
}


# ------------------------------------------------------------------------------------------------------- one run


def at(series: Sequence[tuple[float, ...]], time_s: float) -> float:
    """The value at a time, between two entries.

    >>> at([(0.0, 0.0), (2.0, 10.0)], 1.0)
    5.0
    """
    after = bisect_right(series, time_s, key=lambda entry: entry[0])
    if after == 0 or after == len(series):
        return float(series[0][1] if after == 0 else series[-1][1])
    (t0, a, *_), (t1, b, *_) = series[after - 1], series[after]
    return float(a + (b - a) * (time_s - t0) / (t1 - t0))


def rate(logs: Sequence[Log], begin_s: float, end_s: float) -> float:
    return sum(at(log, end_s) - at(log, begin_s) for log in logs) / (end_s - begin_s)


def summary(run: Run, cell: Cell) -> dict[str, Any]:
    """The figures of a run; None where there is none."""
    told: dict[str, Any] = dict.fromkeys(("rate", "target_s", "target_from_command_s", "target_mb", "cpu_ms", "bytes"))
    warm = [next((entry[0] for entry in log if entry[2] >= WARM_STEPS), None) for log in run.logs.values()]
    ends = [log[-1][0] for log in run.logs.values() if log]
    if None in warm or len(ends) < WORLD:
        return told
    begin_s, logs = max(w for w in warm if w is not None), list(run.logs.values())
    end_s = run.killed_s if run.killed_s is not None else min(ends)
    if end_s - begin_s < 1.0:
        return told
    samples = rate(logs, begin_s, end_s) * (end_s - begin_s)
    told["rate"] = samples / (end_s - begin_s)
    told["bytes"] = (at(run.wire, end_s) - at(run.wire, begin_s)) / samples
    told["cpu_ms"] = (at(run.cpu, end_s) - at(run.cpu, begin_s)) / samples * 1e3
    first_s = min(log[0][0] for log in logs)
    told["first_step_s"] = first_s - run.command_s
    told |= _target(run, cell, first_s)
    return told | (_after_kill(run, begin_s) if run.killed_s is not None else {})


def _target(run: Run, cell: Cell, first_s: float) -> dict[str, Any]:
    """When the target was reached, by weights that were evaluated on all held-out data, and the last score."""
    task = TASKS[cell.model]
    good = [t for t, score in run.scores if (score <= task.target if task.text else score >= task.target)]
    if not run.scores:
        return {}
    found: dict[str, Any] = {"last_score": run.scores[-1][1], "last_s": run.scores[-1][0] - first_s}
    if good:
        found |= {"target_s": good[0] - first_s, "target_from_command_s": good[0] - run.command_s}
        found["target_mb"] = at(run.wire, good[0]) / 1e6
    return found


def _after_kill(run: Run, begin_s: float) -> dict[str, Any]:
    killed_s = run.killed_s or 0.0
    survivors = [log for rank, log in run.logs.items() if rank != KILLED]
    end_s = max(run.wire[-1][0], killed_s + 1.0)
    pauses = []
    for log in survivors:
        times = [entry[0] for entry in log if entry[0] >= killed_s - 2.0]
        gaps = [b - a for a, b in zip(times, [*times[1:], end_s], strict=True)]
        pauses.append(max(gaps, default=end_s - killed_s))
    exits = {rank: code for rank, (_, code) in run.exits.items() if rank != KILLED}
    still = sum(end_s - log[-1][0] > PAUSE_AFTER_S for log in survivors)
    return {
        "before": rate(survivors, begin_s, killed_s),
        "after": rate(survivors, killed_s, end_s),
        "pause_s": max(pauses),
        "ended": len(exits),
        "standing": still - len(exits) if still > len(exits) else 0,
    }


# ------------------------------------------------------------------------------------------------------- all runs


def median(runs: Runs, cell: str, figure: str) -> float | None:
    found = [run[figure] for run in runs.get(cell, ()) if run.get(figure) is not None]
    return statistics.median(found) if found else None


def ratio_row(label: str, above: float | None, below: float | None, **bar: float) -> list[Row]:
    return [row(label, above / below, "x", **bar)] if above and below else []


def bars(runs: Runs) -> list[Row]:
    """The bars of the race that the runs can tell."""
    rows: list[Row] = []

    def rate_of(setting: str, way: str, end: str = "") -> float | None:
        return median(runs, f"{setting}/{way}{end}", "rate")

    for link, label in LINK_LABELS.items():
        setting = f"mlp/{link}"
        whole = rate_of(setting, BOUND)
        rows += ratio_row(f"{label}: async / the bound", rate_of(setting, ASYNC), whole, at_least=0.95)
        least = {"100mbit": 10.0, "1gbit": 2.0}.get(link)
        more = {} if least is None else {"at_least": least}
        rows += ratio_row(f"{label}: async / DDP, samples/s", rate_of(setting, ASYNC), rate_of(setting, DDP), **more)
        rows += ratio_row(f"{label}: sync / DDP, samples/s", rate_of(setting, SYNC), rate_of(setting, DDP), at_least=1.0)
    for figure, share, begin in (("target_s", 0.2, "first step"), ("target_from_command_s", 1 / 3, "command")):
        others = {way: median(runs, f"mlp/100mbit/{way}", figure) for way in WAYS if not way.startswith("taut")}
        best = min((value for value in others.values() if value), default=None)
        mine = median(runs, f"mlp/100mbit/{ASYNC}", figure)
        rows += ratio_row(f"100 Mbit/s, 97% from the {begin}: async / the best peer", mine, best, at_most=share)
    for link in ("100mbit", "unlimited"):
        lockstep = [way for way, one in WAYS.items() if one.lockstep and not one.is_taut]
        rates = [rate_of(f"mlp/{link}", way, "/slow") for way in lockstep]
        best = max((value for value in rates if value), default=None)
        label = f"{LINK_LABELS[link]}, one worker 4 times slower: async / the fastest synchronous peer"
        rows += ratio_row(label, rate_of(f"mlp/{link}", ASYNC, "/slow"), best, at_least=2.0)
    return rows


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rows = [f"| {' | '.join(cells)} |" for cells in (head, *lines)]
    return "\n".join([rows[0], "|" + "---|" * len(head), *rows[1:]])


def _number(value: float | None, form: str = "{:.3g}") -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 1000 else form.format(value)


def _target_text(runs: Runs, cell: str, figure: str) -> str:
    """The median, or what was reached instead; with how many runs of it got there, where not all did."""
    mine = [run for run in runs[cell] if run["rate"] is not None]
    reached = [run[figure] for run in mine if run.get(figure) is not None]
    if reached and 2 * len(reached) > len(mine):
        note = "" if len(reached) == len(mine) else f" ({len(reached)} of {len(mine)} runs)"
        return f"{statistics.median(reached):.1f}{note}"
    last = [run for run in mine if run.get("last_score") is not None]
    if not last or figure != "target_s":
        return ""
    return f"not in {max(run['last_s'] for run in last):.0f} ({statistics.median(run['last_score'] for run in last):.3g})"


def _loads(made: Sequence[dict[str, Any]]) -> str:
    return f"{len(made)} ({statistics.median(x for run in made for x in run['load']):.0f})"


def _lines(runs: Runs, setting: str, end: str, cells: Callable[[str], list[str]]) -> list[list[str]]:
    lines = []
    for way, one in WAYS.items():
        cell = f"{setting}/{way}{end}"
        if cell in runs and all(run["rate"] is None for run in runs[cell]):
            lines.append([one.label, "did not run"])
        elif cell in runs:
            lines.append([one.label, *cells(cell), _loads(runs[cell])])
    return lines


def page(runs: Runs) -> str:
    """All tables, in Markdown."""
    parts = []
    whole = {"mlp": "MLP, 0.67M parameters, MNIST", "cnn": "CNN, 0.42M, MNIST", "text": "character transformer, 3.2M"}

    def plain(cell: str) -> list[str]:
        target = [_target_text(runs, cell, figure) for figure in ("target_s", "target_from_command_s", "target_mb")]
        return [*target, *(_number(median(runs, cell, figure)) for figure in ("rate", "bytes", "cpu_ms"))]

    def slow(cell: str) -> list[str]:
        quick = median(runs, cell.removesuffix("/slow"), "rate")
        mine = median(runs, cell, "rate")
        return [_number(mine), f"{100 * mine / quick:.0f}%" if mine and quick else ""]

    def killed(cell: str) -> list[str]:
        before, after = (median(runs, cell, figure) for figure in ("before", "after"))
        ended, standing = (max(run.get(kind, 0) for run in runs[cell]) for kind in ("ended", "standing"))
        fate = f"{ended} of 3 ended" if ended else f"{standing} of 3 stood still" if standing else "all 3 went on"
        return [fate, *map(_number, (before, after, median(runs, cell, "pause_s")))]

    for model, label in whole.items():
        unit = "loss 2.2" if TASKS[model].text else f"{TASKS[model].target:g}%"
        head = ["", f"s to {unit}", "from the command", "MB until then", "samples/s", "bytes/sample"]
        for link, where in LINK_LABELS.items():
            if lines := _lines(runs, f"{model}/{link}", "", plain):
                table = _table([*head, "CPU ms/sample", "runs (load)"], lines)
                parts.append(f"## {label}, {where}\n\n{table}")
    for link, where in LINK_LABELS.items():
        if lines := _lines(runs, f"mlp/{link}", "/slow", slow):
            table = _table(["", "samples/s", "of the speed without", "runs (load)"], lines)
            parts.append(f"## One worker is 4 times slower: MLP, {where}\n\n{table}")
    if lines := _lines(runs, "mlp/100mbit", "/killed", killed):
        head = ["", "the other workers", "samples/s of theirs before", "after", "longest pause, s", "runs (load)"]
        parts.append(f"## One worker is killed: MLP, 100 Mbit/s\n\n{_table(head, lines)}")
    return "\n\n".join(parts)


def picture(runs: Runs, path: Path) -> None:
    """Samples per second of every way on every link, and the time to the target at 100 Mbit/s."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    ways = [way for way in WAYS if way != BOUND and f"mlp/100mbit/{way}" in runs][::-1]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 0.36 * len(ways) + 1.6), sharey=True, layout="constrained")
    links = [link for link in LINK_LABELS if any(f"mlp/{link}/{way}" in runs for way in ways)]
    height = 0.8 / max(1, len(links))
    for number, link in enumerate(links):
        y = [i + height * ((len(links) - 1) / 2 - number) for i in range(len(ways))]
        values = [median(runs, f"mlp/{link}/{way}", "rate") or 0.0 for way in ways]
        left.barh(y, values, height, label=LINK_LABELS[link], color=f"C{number}")
    bound = [median(runs, f"mlp/{link}/{BOUND}", "rate") for link in links]
    if any(bound):
        left.axvline(statistics.median(b for b in bound if b), color="0.4", linestyle=":", label="the bound")
    left.set_yticks(range(len(ways)), [WAYS[way].label for way in ways])
    left.set_xlabel("samples/s of four workers, MLP")
    left.legend(fontsize=8, frameon=False)
    for i, way in enumerate(ways):
        value = median(runs, f"mlp/100mbit/{way}", "target_s")
        if value is None:
            right.text(0, i, f" {_target_text(runs, f'mlp/100mbit/{way}', 'target_s')}", va="center", fontsize=8)
        else:
            right.barh(i, value, 0.6, color="C0" if way.startswith("taut") else "0.6")
            right.text(value, i, f" {value:.0f}", va="center", fontsize=8)
    right.set_xlabel("seconds from the first step to 97% of MNIST, 100 Mbit/s")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)

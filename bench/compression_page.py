"""What ``compression.py`` found: a table for each task and strategy, the bars, a picture."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from compression_cases import DGC, MOMENTUM, Case
from compression_picture import draw
from report import Row, machine, row

UNITS = {"mnist": "%", "text": "nats"}
QUALITY = {"mnist": "accuracy on the test set, %", "text": "validation loss, nats per character"}
SPAN = {"mnist": ".2f", "text": ".3f"}
RATIO, LOSS = 1000.0, 0.5  # the bar of threshold
RATIOS = (1, 10, 30, 100, 300, 1000)
POWER = 0.3  # and that of PowerSGD, in points


@dataclass(frozen=True)
class Cell:
    """What the seeds of one case gave. ``mean`` is NaN if one of them diverged. ``ratio``: dense bytes over bytes sent;
    ``updates``: the same without the first weights, which every run sends once to every worker but one."""

    case: Case
    scores: tuple[float, ...]
    diverged: int
    megabytes: float
    ratio: float
    updates: float
    staleness: float
    cpu_s: float

    @property
    def mean(self) -> float:
        return math.nan if self.diverged else statistics.mean(self.scores)

    @property
    def spread(self) -> tuple[float, float]:
        return (min(self.scores), max(self.scores)) if self.scores else (math.nan, math.nan)


def cells(records: Sequence[Mapping[str, Any]]) -> dict[Case, Cell]:
    """Seeds together, in the order of bytes, the most first."""
    by_case: dict[Case, list[Mapping[str, Any]]] = {}
    for record in records:
        by_case.setdefault(Case(record["task"], record["strategy"], record["codec"]), []).append(record)
    found = {case: _cell(case, runs) for case, runs in by_case.items()}
    return dict(sorted(found.items(), key=lambda item: (item[0].task, item[0].strategy, _rank(item[1]))))


def _rank(cell: Cell) -> float:
    return math.inf if math.isnan(cell.megabytes) else -cell.megabytes


def _cell(case: Case, runs: Sequence[Mapping[str, Any]]) -> Cell:
    ended = [run for run in runs if run.get("bytes_sent")]
    sent, dense = (sum(run[name] for run in ended) for name in ("bytes_sent", "bytes_dense"))
    first = sum(run["bytes_dense"] / run["steps"] for run in ended)  # dense bytes of a step: the weights to all peers
    return Cell(
        case,
        tuple(run["score"] for run in runs if run["score"] is not None),
        sum(run["score"] is None for run in runs),
        sent / len(ended) / 1e6 if ended else math.nan,
        dense / sent if sent else math.nan,
        dense / (sent - first) if sent else math.nan,
        statistics.mean(run["staleness"] for run in ended) if ended else math.nan,
        statistics.mean(run["cpu_s"] for run in runs),
    )


# ------------------------------------------------------------------------------------------------------ bars


def bars(found: Mapping[Case, Cell]) -> list[Row]:
    """Those of issue 5. A figure that is not there misses its bar."""

    def of(codec: str, task: str = "mnist") -> float:
        cell = found.get(Case(task, "sync", codec))
        return cell.mean if cell else math.nan

    best, dgc, plain = "topk:density=0.001", DGC, "topk:density=0.001,feedback=no"
    low, without = "powersgd:rank=2", "powersgd:rank=2,feedback=no"
    return [
        *_threshold(found),
        *_threshold(found, "tether"),
        row("mnist, sync: dgc at 0.1% above topk", of(dgc) - of(best), "points", at_least=0.0),
        row("mnist, sync: dgc at 0.1%, warm-up of 256 steps, above topk", of("dgc:density=0.001") - of(best), "points"),
        row("mnist, sync: topk at 0.1% above the same without feedback", of(best) - of(plain), "points", at_least=0.0),
        row("text, sync: dgc at 0.1% better than topk (AdamW)", of(best, "text") - of(dgc, "text"), "nats"),
        row("text, sync: topk at 0.1% better than without feedback", of(plain, "text") - of(best, "text"), "nats"),
        row("mnist, sync: powersgd of rank 2 below dense", of("dense") - of(low), "points", at_most=POWER),
        row(
            "mnist, sync: powersgd of rank 2 above the same without feedback",
            of(low) - of(without),
            "points",
            at_least=0.0,
        ),
    ]


def _threshold(found: Mapping[Case, Cell], name: str = "threshold") -> list[Row]:
    """The best setting with 1000 times fewer bytes, against the best of dense under its own strategy and under sync:
    dense is late in async, and being better than that alone would say little."""
    rows, losses = [], []
    sync = _mean(found, Case("mnist", "sync", "dense"))
    for strategy in ("sync", "ssp:0", "async"):
        own = _mean(found, Case("mnist", strategy, "dense"))
        for counted, what in (("ratio", "all bytes"), ("updates", "bytes of updates")):
            fit = [
                cell
                for case, cell in found.items()
                if (case.task, case.strategy, case.name) == ("mnist", strategy, name)
                and getattr(cell, counted) >= RATIO
                and not cell.diverged
            ]
            if fit:
                top = max(fit, key=lambda cell: cell.mean)
                given = f"mnist, {strategy}: {top.case.codec}, {getattr(top, counted):,.0f}x ({what})"
                rows.append(row(f"{given}: below dense", own - top.mean, "points"))
                losses += [(own if own > sync else sync) - top.mean] if counted == "ratio" else []
    least = min(losses, default=math.nan)
    bar = LOSS
    return [*rows, row(f"mnist: {name} at {RATIO:,.0f}x or more, below dense", least, "points", at_most=bar)]


def _mean(found: Mapping[Case, Cell], case: Case) -> float:
    return found[case].mean if case in found else math.nan


def figures(found: Mapping[Case, Cell]) -> list[Row]:
    rows = []
    for case, cell in found.items():
        low, high = cell.spread
        rows.append(row(f"{case}: quality", cell.mean, UNITS[case.task]))
        rows.append(row(f"{case}: spread between seeds", high - low, UNITS[case.task]))
        rows.append(row(f"{case}: sent", cell.megabytes, "MB"))
        rows.append(row(f"{case}: bytes of dense updates to every peer / bytes sent", cell.ratio, "x"))
    return rows


# ------------------------------------------------------------------------------------------------------ page


def tables(found: Mapping[Case, Cell]) -> str:
    parts = []
    for task, strategy in dict.fromkeys((case.task, case.strategy) for case in found):
        parts.append(f"## {task}, {strategy}\n\n{QUALITY[task]}; mean and range of the seeds\n")
        parts.append(
            "| codec | quality | range | MB | dense / sent | updates alone | staleness |\n|---|---|---|---|---|---|---|"
        )
        parts += [_line(cell) for case, cell in found.items() if (case.task, case.strategy) == (task, strategy)]
        parts.append("")
    return "\n".join(parts)


def fronts(found: Mapping[Case, Cell]) -> str:
    """Who is best at so many times fewer bytes or more."""
    lines = [f"| | {' | '.join(f'{ratio}x' for ratio in RATIOS)} |", "|---" * (len(RATIOS) + 1) + "|"]
    for task, strategy in dict.fromkeys((case.task, case.strategy) for case in found):
        sign = 1.0 if task == "mnist" else -1.0
        words = []
        for ratio in RATIOS:
            fit = [
                cell
                for case, cell in found.items()
                if (case.task, case.strategy) == (task, strategy) and cell.ratio >= ratio and not math.isnan(cell.mean)
            ]
            best = max(fit, key=lambda cell: sign * cell.mean, default=None)
            words.append(f"`{best.case.codec}` {best.mean:{SPAN[task]}}" if best else "")
        lines.append(f"| {task}, {strategy} | {' | '.join(words)} |")
    heading = "## The best at so many times fewer bytes than dense updates to every peer, or more"
    return f"{heading}\n\n" + "\n".join(lines) + "\n"


def _line(cell: Cell) -> str:
    span = " to ".join(format(value, SPAN[cell.case.task]) for value in cell.spread) if cell.scores else ""
    seeds = len(cell.scores) + cell.diverged
    quality = f"diverged ({cell.diverged} of {seeds})" if cell.diverged else format(cell.mean, SPAN[cell.case.task])
    codec = f"`{cell.case.codec}`" + (" (momentum 0)" if cell.case.name in MOMENTUM else "")
    ratios = f"{_figure(cell.ratio)} | {_figure(cell.updates)} | {_figure(cell.staleness)}"
    return f"| {codec} | {quality} | {span} | {_figure(cell.megabytes)} | {ratios} |"


def _figure(value: float) -> str:
    """Three digits; nothing for what is not known.

    >>> _figure(1.2345), _figure(1234.5), _figure(12345.6)
    ('1.23', '1,234', '12,346')
    """
    if math.isnan(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def verdicts(rows: Sequence[Row]) -> str:
    lines = ["| figure | value | unit | bar | |", "|---|---|---|---|---|"]
    for one in rows:
        verdict = ("met" if one.ok else "MISSED") if one.bar else ""
        lines.append(f"| {one.name} | {one.value:.3g} | {one.unit} | {one.bar} | {verdict} |")
    return "\n".join(lines)


def plain(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For JSON, which has no NaN."""
    return [asdict(one) | ({"value": None} if math.isnan(one.value) else {}) for one in rows]


NOTES = """\
- The same learning rate and schedule for all. Momentum is 0.9 in the optimizer (AdamW: its first moment), but 0 with
  `dgc`, which has it in the codec; DGC is made for SGD. `demo:sign=no`: steps by signs would need a rate of their own.
- dense / sent: dense float32 updates to every peer at every step, over all that was sent; the first weights, once to
  every worker but one, are part of that. "updates alone" is without them. Dense itself in `sync` is a ring, and so is
  what would send more than one (fp16, bf16).
- Staleness: own steps until others have included an update, at the end of the run, the latest worker's.
"""


def finish(
    records: Sequence[Mapping[str, Any]], left_out: Sequence[str], failures: Sequence[str], args: argparse.Namespace
) -> NoReturn:
    """Print what was found, write it down if it is the whole, and end: 0 if every bar was met, 1 otherwise."""
    found = cells(records)
    partial = bool(args.only or args.task or args.quick)
    held = [] if partial else bars(found)
    rows = [*figures(found), *held]
    shown = f"{fronts(found)}\n{tables(found)}\n" + (f"## Bars\n\n{verdicts(held)}\n" if held else "")
    print(json.dumps(plain(rows), indent=1) if args.json else shown)
    if not args.quick and found:
        path = args.folder / ("compression-some" if partial else "compression")
        _write(path, shown, found, rows, [*left_out, *failures])
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    missed = [one.name for one in rows if not one.ok]
    if missed:
        print(f"missed: {', '.join(missed)}", file=sys.stderr)
    sys.exit(1 if missed or failures else 0)


def _write(path: Path, shown: str, found: Mapping[Case, Cell], rows: Sequence[Row], undone: Sequence[str]) -> None:
    about = {"command": shlex.join(["python", *sys.argv]), **machine()}
    versions = ", ".join(f"{package} {version}" for package, version in about["versions"].items())
    cpu_s = {task: [cell.cpu_s for case, cell in found.items() if case.task == task] for task in UNITS}
    lines = [
        NOTES.rstrip(),
        *(f"- CPU time of a {task} run: {statistics.mean(each):.0f} s" for task, each in cpu_s.items() if each),
        *(f"- not in the tables: {each}" for each in undone),
        f"- command: `{about['command']}`",
        f"- machine: {about['cpu']}, {about['cores']} cores, {about['system']}",
        f"- versions: {versions}",
    ]
    draw(list(found.values()), path.with_suffix(".png"))
    picture = f"![Quality against compression]({path.name}.png)"
    path.with_suffix(".md").write_text(f"# {path.name}\n\n{picture}\n\n{shown}\n" + "\n".join(lines) + "\n")
    whole = {"name": path.name, **about, "rows": plain(rows), "undone": list(undone)}
    path.with_suffix(".json").write_text(json.dumps(whole, indent=1) + "\n")

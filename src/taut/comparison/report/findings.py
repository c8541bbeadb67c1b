"""The findings in words. A difference that is smaller than the spread between seeds is called that.

The rule: of two configurations, each with its mean and its spread over seeds (greatest less smallest), the better mean is
better only where the means differ by more than the larger of the two spreads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from taut.comparison.report.labels import figure, listed, names, seconds, workers
from taut.comparison.report.table import Row, series
from taut.comparison.runs.record import RunRecord, versions_of
from taut.comparison.runs.target import Target, metric_of
from taut.quantities import size

MOST_NAMED = 4  # the table has all
Written = Callable[[float], str]


def findings(summary: Sequence[Row], records: Sequence[RunRecord], target: Target | None = None) -> list[str]:
    """Return the sentences, the most important first."""
    told = _seeds(summary)
    if not any(row["runs"] > row["failed"] for row in summary):
        return [*told, "No run finished, so there is nothing to compare.", *_troubles(summary, records)]
    if target is not None:
        told += _to_target(summary, target)
    metric = metric_of(records)
    called = "validation score" if metric == "score" else "training loss"
    higher = metric == "score" and next(row["better"] for row in summary if row["runs"] > row["failed"]) == "higher"
    for count in sorted({row["workers"] for row in summary}):
        rows = [row for row in summary if row["workers"] == count]
        told += contest(rows, metric, f"{called} with {workers(count)}", higher=higher)
    most = max(row["workers"] for row in summary)
    rows = [row for row in summary if row["workers"] == most]
    if any(row.get("samples_per_s") for row in rows):  # else the script does not say how many samples a step has
        told += contest(rows, "samples_per_s", f"samples per second with {workers(most)}", higher=True)
    told += contest(rows, "bytes_sent", f"bytes sent with {workers(most)}", higher=False, written=size)
    return told + _scaling(summary) + _troubles(summary, records)


def contest(rows: Sequence[Row], name: str, what: str, *, higher: bool, written: Written = figure) -> list[str]:
    """Say which configuration is best at one figure, and which cannot be told from it.

    >>> row = {"codec": "dense", "topology": "ring", "score_spread": 0.6}
    >>> rows = [row | {"strategy": "async", "score": 93.1}, row | {"strategy": "gossip", "score": 92.9}]
    >>> contest(rows, "score", "score", higher=True)
    ['Best score: async 93.1 and gossip 92.9 differ by less than the spread between seeds (0.6).']
    """
    ranked = sorted((row for row in rows if row.get(name) is not None), key=lambda row: float(row[name]), reverse=higher)
    if len(ranked) < 2:
        return []
    labels = names(rows)

    def said(row: Row) -> str:
        return f"{labels[series(row)]} {written(row[name])}"

    best, rest = ranked[0], ranked[1:]
    level = [best, *(row for row in rest if not apart(best, row, name))]
    behind = [row for row in rest if apart(best, row, name)]
    spread = max(row.get(f"{name}_spread") or 0.0 for row in level)
    first = "Best" if name in ("score", "loss") else "Most" if higher else "Fewest"
    if len(level) == 1:
        told = f"{first} {what}: {said(best)}, then {said(behind.pop(0))}."
    elif spread == 0.0:
        told = f"{first} {what}: {listed([said(row) for row in level])} are equal."
    else:
        others = listed([said(row) for row in level[1:]])
        joined = f" and {others} differ" if len(level) == 2 else f"; {others} differ from it"
        told = f"{first} {what}: {said(best)}{joined} by less than the spread between seeds ({written(spread)})."
    return [told + (f" Last: {said(behind[-1])}." if behind else "")]


def apart(one: Row, other: Row, name: str) -> bool:
    """Return whether two means differ by more than the larger spread; with one seed there is no spread, and any
    difference counts.

    >>> apart({"x": 1.0, "x_spread": 0.1}, {"x": 1.3, "x_spread": 0.4}, "x")
    False
    """
    spread = max(one.get(f"{name}_spread") or 0.0, other.get(f"{name}_spread") or 0.0)
    return bool(abs(one[name] - other[name]) > spread)


def _seeds(summary: Sequence[Row]) -> list[str]:
    if summary and max(row["runs"] for row in summary) < 2:
        return [
            "Every configuration was run with one seed: no spread between seeds is known, and small differences may be "
            "chance; --seeds 3 would tell."
        ]
    return []


def _to_target(summary: Sequence[Row], target: Target) -> list[str]:
    labels = names(summary)
    there = [row for row in summary if row["time_to_target_s"] is not None]
    if not there:
        return [f"No configuration reached the target ({target}) with every seed."]
    named = {id(row): f"{labels[series(row)]} with {workers(row['workers'])}" for row in summary}
    first = min(there, key=lambda row: float(row["time_to_target_s"]))
    told = f"Fastest to the target ({target}): {named[id(first)]}, {seconds(first['time_to_target_s'])}"
    near = [row for row in there if row is not first and not apart(first, row, "time_to_target_s")]
    if near:
        others = listed([f"{named[id(row)]} ({seconds(row['time_to_target_s'])})" for row in near])
        spread = max(row["time_to_target_s_spread"] or 0.0 for row in (first, *near))
        told += f"; {others} {'differs' if len(near) == 1 else 'differ'} from it by less than the spread between seeds "
        told += f"({seconds(spread)})"
    out = [told + "."]
    missed = [
        f"{named[id(row)]} ({row['reached']} of {row['runs'] - row['failed']})"
        for row in summary
        if row["time_to_target_s"] is None and row["runs"] > row["failed"]
    ]
    if missed:
        shown = missed if len(missed) <= MOST_NAMED else [*missed[:MOST_NAMED], f"{len(missed) - MOST_NAMED} more"]
        out.append(f"Not reached with every seed: {listed(shown)}.")
    if any(row["target_known_at_end_only"] for row in there):
        out.append(
            "The score of a real run is measured at its end only, so its time to the target is the whole run's; it may "
            "have been good enough before. --target loss=VALUE uses the training loss, which is known all along."
        )
    return out


def _scaling(summary: Sequence[Row]) -> list[str]:
    counts = sorted({row["workers"] for row in summary})
    rows = [row for row in summary if row["workers"] == counts[-1] and row["efficiency"] is not None]
    if len(counts) < 2 or not rows:
        return []
    labels = names(summary)
    ranked = sorted(rows, key=lambda row: float(row["efficiency"]), reverse=True)
    said = [f"{labels[series(row)]} keeps {100 * row['efficiency']:.0f}%" for row in (ranked[0], ranked[-1])]
    base = "one worker's rate" if counts[0] == 1 else f"the rate that each had with {workers(counts[0])}"
    return [f"From {counts[0]} to {workers(counts[-1])}, {listed(list(dict.fromkeys(said)))} of {base}, per worker."]


def _troubles(summary: Sequence[Row], records: Sequence[RunRecord]) -> list[str]:
    told = []
    failed = [record for record in records if not record.finished]
    if failed:
        told.append(f"{len(failed)} of {len(records)} runs failed; they are listed below with their errors.")
    for package, some in sorted(versions_of(records).items()):
        if len(some) > 1:
            told.append(f"Not all runs had the same {package}: {listed(sorted(some))}. Differences may be due to that.")
    return told

"""Tidy tables: one row per run, and one per configuration with means and the spread between seeds."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from typing import Any

from taut.comparison.runs.record import RunRecord
from taut.comparison.runs.target import Target, reached
from taut.core.messages import TIME_PARTS

Row = dict[str, Any]
CONFIGURATION = ("strategy", "codec", "topology", "workers")
TEXTS = ("strategy", "codec", "topology", "kind", "state", "better", "error", "key", "command")
COLUMNS = (
    "strategy codec topology workers seed kind state score better loss wall_s samples samples_per_s bytes_sent "
    "compression staleness consensus_distance identical time_to_target_s target_known_at_end_only"
)
MEASURED = (
    "score loss wall_s samples_per_s bytes_sent compression staleness consensus_distance time_to_target_s wait_share"
)
FINISHED = ("wall_s", "samples_per_s", "bytes_sent", "staleness")  # known only of a run that finished


class Table(list[Row]):
    """Rows with the same columns.

    >>> print(Table([{"strategy": "sync", "workers": 4, "score": None}]).to_csv(), end="")
    strategy,workers,score
    sync,4,
    """

    @property
    def columns(self) -> list[str]:
        return list(self[0]) if self else []

    def to_csv(self) -> str:
        """Write CSV: numbers so that they are read back exactly, unknown values as nothing."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _written(value) for key, value in row.items()} for row in self)
        return text.getvalue()

    @classmethod
    def from_csv(cls, text: str) -> Table:
        """Read the text of ``to_csv``.

        >>> Table.from_csv("strategy,workers,score\\nsync,4,\\n")
        [{'strategy': 'sync', 'workers': 4, 'score': None}]
        """
        rows = csv.DictReader(io.StringIO(text, newline=""))
        return cls({key: _read(key, value) for key, value in row.items()} for row in rows)

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame``; pandas must be installed."""
        import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]

        return pandas.DataFrame(list(self))


def _written(value: Any) -> Any:
    return repr(value) if isinstance(value, float) else value


def _read(column: str, value: str) -> Any:
    if column in TEXTS:
        return value
    if value in ("", "True", "False"):
        return {"": None, "True": True, "False": False}[value]
    try:
        return int(value)
    except ValueError:
        return float(value)


def tidy(records: Iterable[RunRecord], target: Target | None = None) -> Table:
    """Return one row per run."""
    return Table(_tidy_row(record, target) for record in records)


def _tidy_row(record: RunRecord, target: Target | None) -> Row:
    when = reached(record, target) if target is not None else None
    split = _shares(record)
    made = {
        "kind": "simulated" if record.simulated else "real",
        "time_to_target_s": when.time_s if when else None,
        "target_known_at_end_only": when.by_end if when else None,
        **({} if record.finished else dict.fromkeys(FINISHED)),
    }
    return {
        **{name: made[name] if name in made else getattr(record, name) for name in COLUMNS.split()},
        **{f"{part}_share": split.get(part) for part in (*TIME_PARTS, "other")},
        **{name: getattr(record, name) for name in ("error", "key", "command")},
    }


def _shares(record: RunRecord) -> dict[str, float]:
    whole_s = sum(sum(worker.values()) for worker in record.time_split)
    if whole_s <= 0:
        return {}
    return {part: sum(worker.get(part, 0.0) for worker in record.time_split) / whole_s for part in record.time_split[0]}


def summarise(rows: Sequence[Row]) -> Table:
    """Return one row per configuration: of each figure its mean over seeds and its ``_spread``, the greatest less the
    smallest (None with one seed). ``speed_up``: of samples per second, against the fewest workers of the same choices, as
    if those had been perfectly efficient."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in CONFIGURATION), []).append(row)
    return Table(_with_speed_ups([_summary_row(group) for group in groups.values()]))


def _summary_row(group: Sequence[Row]) -> Row:
    finished = [row for row in group if row["state"] == "finished"]
    summary: Row = {key: group[0][key] for key in (*CONFIGURATION, "kind")}
    summary |= {"runs": len(group), "failed": len(group) - len(finished), "better": group[0]["better"]}
    summary["reached"] = sum(row["time_to_target_s"] is not None for row in finished)
    summary["target_known_at_end_only"] = any(row["target_known_at_end_only"] for row in finished)
    for name in MEASURED.split():
        values = [float(row[name]) for row in finished if row[name] is not None]
        if name == "time_to_target_s" and len(values) < len(finished):
            values = []  # the mean of those that got there would flatter a method that sometimes does not
        summary[name] = math.fsum(values) / len(values) if values else None
        summary[f"{name}_spread"] = max(values) - min(values) if len(values) > 1 else None
    if finished:
        summary["better"] = finished[0]["better"]
    return summary


def _with_speed_ups(rows: list[Row]) -> list[Row]:
    fewest: dict[tuple[Any, ...], Row] = {}
    for row in sorted(rows, key=lambda each: int(each["workers"])):
        if row["samples_per_s"]:
            fewest.setdefault(series(row), row)
    for row in rows:
        base = fewest.get(series(row))
        speed_up = None
        if base is not None and row["samples_per_s"]:
            speed_up = row["samples_per_s"] / base["samples_per_s"] * base["workers"]
        row["speed_up"] = speed_up
        row["efficiency"] = None if speed_up is None else speed_up / row["workers"]
    return rows


def series(row: Row) -> tuple[str, str, str]:
    """Return the choices that are the same along a curve over workers."""
    return row["strategy"], row["codec"], row["topology"]

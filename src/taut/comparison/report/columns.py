"""The summary as a table for people: the same columns on the page, in Markdown and, as far as they fit, in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from taut.comparison.report.labels import seconds, with_spread
from taut.comparison.report.table import Row
from taut.comparison.runs.target import Metric
from taut.quantities import size

WORDS = ("strategy", "codec", "topology", "state", "error")


@dataclass(frozen=True)
class Column:
    """A column of the summary. ``rank``: the higher, the earlier it is left out where there is no room; 0: never."""

    title: str
    text: Callable[[Row], str]
    rank: int = 0
    words: bool = False  # aligned to the left


def text_column(name: str) -> Column:
    """Return the column of a text, or of a number as it is."""
    return Column(name, lambda row: str(row[name]), words=name in WORDS)


def columns(rows: Sequence[Row], metric: Metric, with_target: bool) -> list[Column]:
    """Return the columns that say something of these rows: what is the same everywhere, or known nowhere, is left out."""
    choices = ["strategy", "codec", *(["topology"] if len({row["topology"] for row in rows}) > 1 else []), "workers"]
    found = [*map(text_column, choices), Column("runs", _runs, 2)]
    if any(row[metric] is not None for row in rows):
        found.append(Column(metric, lambda row: with_spread(row, metric)))
    if with_target:
        found.append(Column("to target", _to_target))
    found += [
        Column("trained", lambda row: seconds(row["wall_s"]), 1),
        Column("samples/s", lambda row: with_spread(row, "samples_per_s")),
        Column("sent", lambda row: size(row["bytes_sent"])),
        Column("vs ring", lambda row: _number(row["compression"], "{:.1f}x"), 3),
        Column("stale", lambda row: _number(row["staleness"] or None, "{:.1f}"), 3),
        Column("wait", lambda row: _percent(row["wait_share"]), 1),
        Column("distance", lambda row: _number(row["consensus_distance"], "{:.2g}"), 4),
    ]
    if len({row["workers"] for row in rows}) > 1:
        found.append(Column("speed-up", lambda row: _number(row["speed_up"], "{:.2f}"), 2))
        found.append(Column("efficiency", lambda row: _percent(row["efficiency"]), 3))
    return found


def markdown(rows: Sequence[Row], chosen: Sequence[Column]) -> str:
    """Write the rows as a Markdown table.

    >>> print(markdown([{"strategy": "a|b"}], [Column("strategy", lambda row: row["strategy"], words=True)]), end="")
    | strategy |
    |:---|
    | a\\|b |
    """
    lines = [
        "| " + " | ".join(column.title for column in chosen) + " |",
        "|" + "|".join(":---" if column.words else "---:" for column in chosen) + "|",
        *("| " + " | ".join(column.text(row).replace("|", "\\|") for column in chosen) + " |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def fitting(rows: Sequence[Row], chosen: Sequence[Column], width: int) -> list[Column]:
    """Return as many columns as fit into ``width`` characters: the last ones of the highest rank go first."""
    left = list(chosen)
    while left and _width(rows, left) > width:
        most = max(column.rank for column in left)
        if most == 0:
            break
        left.remove([column for column in left if column.rank == most][-1])
    return left


def _width(rows: Sequence[Row], chosen: Sequence[Column]) -> int:
    return sum(max(len(column.title), *(len(column.text(row)) for row in rows), 0) + 2 for column in chosen) - 2


def _runs(row: Row) -> str:
    return f"{row['runs']}, {row['failed']} failed" if row["failed"] else str(row["runs"])


def _to_target(row: Row) -> str:
    finished = row["runs"] - row["failed"]
    if row["time_to_target_s"] is None:
        return "-" if not finished else "not reached" if not row["reached"] else f"{row['reached']} of {finished}"
    return ("≤ " if row["target_known_at_end_only"] else "") + seconds(row["time_to_target_s"])


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f}%"

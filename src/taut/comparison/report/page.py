"""The report as one page that needs nothing else: style, charts and tables are in it, and nothing is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import resources
from string import Template

from taut.comparison.report.columns import Column, columns, text_column
from taut.comparison.report.labels import figure, seconds, workers
from taut.comparison.report.style import Chart
from taut.comparison.report.table import Row
from taut.comparison.runs.comparison import Comparison
from taut.quantities import size

PAGE = "page.html"  # of this package


def page(made: Comparison, drawings: Sequence[Chart], commands: str, remarks: Sequence[str]) -> str:
    """Write the whole page as HTML."""
    chosen = columns(made.summary, made.metric, made.target is not None)
    template = Template(resources.files(__package__).joinpath(PAGE).read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(f"Comparison: {made.job.script.name}"),
        about=escape(about(made)),
        summary=_table(made.summary, chosen) if made.summary else "<p>No run was made.</p>",
        findings="\n".join(f"<li>{escape(text)}</li>" for text in (*made.findings, *remarks)),
        skipped=_skipped(made),
        charts="\n".join(_figure(each) for each in drawings),
        runs=_table(made.table, _run_columns(made)) if made.table else "<p>None.</p>",
        commands=escape(commands),
    )


def about(made: Comparison) -> str:
    """Say in one line how many runs of which kind there are."""
    finished = sum(record.finished for record in made.records)
    kind = "simulated, times are virtual" if made.job.simulated else "real runs on this machine"
    seeds = len({record.seed for record in made.records})
    counts = [workers(count) for count in sorted({record.workers for record in made.records})]
    said = [f"{finished} runs", kind, f"{seeds} seed{'s' if seeds != 1 else ''}", ", ".join(counts)]
    if made.target is not None:
        said.append(f"target: {made.target}")
    if made.missing:
        said.append(f"{made.missing} runs are still to be made: the same command goes on")
    if seeds > 1:
        said.append("± is half of the spread between seeds (greatest less smallest)")
    return "; ".join(word for word in said if word) + "."


def _run_columns(made: Comparison) -> list[Column]:
    return [
        *map(text_column, ("strategy", "codec", "topology", "workers", "seed", "state")),
        Column("score", lambda row: figure(row["score"])),
        Column("loss", lambda row: figure(row["loss"])),
        Column("to target", lambda row: seconds(row["time_to_target_s"])),
        Column("trained", lambda row: seconds(row["wall_s"])),
        Column("samples/s", lambda row: figure(row["samples_per_s"])),
        Column("sent", lambda row: size(row["bytes_sent"])),
        Column("stale", lambda row: figure(row["staleness"])),
        Column("distance", lambda row: figure(row["consensus_distance"])),
        *([text_column("error")] if any(row["error"] for row in made.table) else []),
    ]


def _table(rows: Sequence[Row], chosen: Sequence[Column]) -> str:
    head = "".join(f"<th{_class(column)}>{escape(column.title)}</th>" for column in chosen)
    body = "\n".join(
        "<tr>" + "".join(f"<td{_class(column)}>{escape(column.text(row))}</td>" for column in chosen) + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def _class(column: Column) -> str:
    return f' class="{"error" if column.title == "error" else "word"}"' if column.words else ""


def _figure(chart: Chart) -> str:
    drawing = chart.svg or ""
    return f"<figure><h3>{escape(chart.title)}</h3>{drawing}<figcaption>{escape(chart.caption)}</figcaption></figure>"


def _skipped(made: Comparison) -> str:
    if not made.skipped:
        return ""
    items = "\n".join(f"<li>{escape(one.what)}: {escape(one.reason)}</li>" for one in made.skipped)
    return f"<details><summary>not combined: {len(made.skipped)}</summary><ul>\n{items}\n</ul></details>"

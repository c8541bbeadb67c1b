"""The report as one page that needs nothing else: style, charts and tables are in it, and nothing is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from string import Template

from taut.comparison.report.columns import Column, columns
from taut.comparison.report.labels import figure, seconds, workers
from taut.comparison.report.style import Chart
from taut.comparison.report.table import Row
from taut.comparison.runs.comparison import Comparison
from taut.quantities import size

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --page: #ffffff; --quiet: #59636e; --line: #d1d9e0; --panel: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --page: #0d1117; --quiet: #9198a1; --line: #3d444d; --panel: #151b23; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 76rem; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p, li { max-width: 60rem; } .quiet, figcaption { color: var(--quiet); font-size: .875rem; }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
tbody tr:last-child td { border-bottom: 0; } th { background: var(--panel); font-weight: 600; }
.word { text-align: left; } .error { text-align: left; white-space: normal; min-width: 18rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)); gap: 1.5rem; }
figure { margin: 0; min-width: 0; } figure h3 { font-size: 1rem; margin: 0 0 .25rem; } svg { width: 100%; height: auto; }
svg text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif !important; }
pre { overflow-x: auto; background: var(--panel); padding: .75rem; border-radius: 6px; font-size: .8rem; }
summary { cursor: pointer; } details { margin: .75rem 0; }
"""
PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>$style</style>
</head>
<body>
<h1>$title</h1>
<p class="quiet">$about</p>
$summary
<h2>Findings</h2>
<ul>
$findings
</ul>
$skipped
<h2>Charts</h2>
<div class="charts">
$charts
</div>
<h2>All runs</h2>
$runs
<h2>To repeat it</h2>
<details><summary>Commands and versions</summary><pre>$commands</pre></details>
</body>
</html>
""")


def page(made: Comparison, drawings: Sequence[Chart], commands: str, remarks: Sequence[str]) -> str:
    """Write the whole page as HTML."""
    chosen = columns(made.summary, made.metric, made.target is not None)
    return PAGE.substitute(
        title=escape(f"Comparison: {made.job.script.name}"),
        style=STYLE,
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
        Column("strategy", lambda row: str(row["strategy"]), words=True),
        Column("codec", lambda row: str(row["codec"]), words=True),
        Column("topology", lambda row: str(row["topology"]), words=True),
        Column("workers", lambda row: str(row["workers"])),
        Column("seed", lambda row: str(row["seed"])),
        Column("state", lambda row: str(row["state"]), words=True),
        Column("score", lambda row: figure(row["score"])),
        Column("loss", lambda row: figure(row["loss"])),
        Column("to target", lambda row: seconds(row["time_to_target_s"])),
        Column("trained", lambda row: seconds(row["wall_s"])),
        Column("samples/s", lambda row: figure(row["samples_per_s"])),
        Column("sent", lambda row: size(row["bytes_sent"])),
        Column("stale", lambda row: figure(row["staleness"])),
        Column("distance", lambda row: figure(row["consensus_distance"])),
        *(
            [Column("error", lambda row: str(row["error"]), words=True)]
            if any(row["error"] for row in made.table)
            else []
        ),
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

"""The report's files: the page, the pictures, tables in Markdown and CSV, and the commands that make it all again."""

from __future__ import annotations

import platform
from pathlib import Path

from taut.comparison.report.charts import charts
from taut.comparison.report.columns import columns, markdown
from taut.comparison.report.labels import listed, workers
from taut.comparison.report.page import about, page
from taut.comparison.runs.comparison import Comparison
from taut.comparison.runs.record import versions_of, write
from taut.config import cores

PAGE = "report.html"


def write_report(made: Comparison) -> Path:
    """Write the report into the comparison's folder, remove pictures that are no longer drawn, and return the page."""
    folder, drawings = made.folder, charts(made)
    told, again = remarks(made), commands(made)
    for chart in drawings:
        path = folder / f"{chart.name}.png"
        if chart.png is not None:
            write(path, chart.png)
        else:
            path.unlink(missing_ok=True)
    write(folder / "table.md", table_page(made, told).encode())
    write(folder / "table.csv", made.summary.to_csv().encode())
    write(folder / "runs.csv", made.table.to_csv().encode())
    write(folder / "commands.txt", again.encode())
    write(folder / PAGE, page(made, drawings, again, told).encode())
    return folder / PAGE


def table_page(made: Comparison, told: list[str]) -> str:
    """Write the summary and the findings in Markdown."""
    table = markdown(made.summary, columns(made.summary, made.metric, made.target is not None)) if made.summary else ""
    points = "".join(f"- {text}\n" for text in (*made.findings, *told))
    left_out = "".join(f"- {one.what}: {one.reason}\n" for one in made.skipped)
    left_out = f"\nLeft out, as they do not go together:\n\n{left_out}" if left_out else ""
    return f"# Comparison: {made.job.script.name}\n\n{about(made)}\n\n{table}\n{points}{left_out}"


def remarks(made: Comparison) -> list[str]:
    """Return the remarks about the measurement that a reader needs."""
    most, here = max((record.workers for record in made.records), default=0), cores()
    told = []
    if not made.job.simulated and most > here:
        told.append(
            f"{workers(most)} shared {here} core{'s' if here != 1 else ''} of this machine, so speed-ups are its limits "
            "rather than the strategies'; --simulate gives each worker its own."
        )
    if made.missing:
        told.append(f"{made.missing} of {len(made.matrix.cells)} runs are still to be made; the same command goes on.")
    return told


def commands(made: Comparison) -> str:
    """Write the exact commands, one for each run, and the versions of the packages."""
    lines = [f"# {package}: {listed(some)}" for package, some in versions_of(made.records).items()]
    lines.append(f"# machine: {platform.machine()}, {cores()} cores")
    if made.command:
        lines.append(f"# all of them: {made.command}")
    return "\n".join([*lines, *(record.command for record in made.records)]) + "\n"

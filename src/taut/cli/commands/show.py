"""``taut show``: one run, as its store remembers it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rich.markup import escape

from taut.cli.options import Given, Json, RunName, output_flag, with_flags
from taut.cli.output.console import print_json, results
from taut.cli.output.display import exchange_text, worker_table
from taut.cli.output.format import duration_text, figures, public, score_text, worker_record
from taut.core.early_stopping import BEST_MODEL
from taut.core.staleness_counts import staleness_text
from taut.supervisor.metrics import cluster_rate, total
from taut.supervisor.storage.store_reader import StoredRun, find_run
from taut.supervisor.storage.store_writer import plain


@with_flags("runs_dir config")
def show(
    run: RunName = "latest",
    *,
    given: Given,
    as_json: Json = False,
    plot: Annotated[bool, output_flag("--plot", help="Also draw it into RUN.png, as `taut plot` does.")] = False,
) -> None:
    """Show one run: its settings, workers, events and result."""
    record = find_run(given.settings().runs_dir, run)
    if plot:
        from taut.analysis.figures import write_figure

        write_figure(record, Path(f"{record.summary.name}.png"))
    if as_json:
        print_json(as_object(record))
    else:
        _print(record)
        if plot:
            results().print(f"figure: {record.summary.name}.png", soft_wrap=True, markup=False)


def as_object(record: StoredRun) -> dict[str, object]:
    """Return the run for JSON: what is stored, and figures made from it."""
    workers = record.rows(record.latest())
    return {
        **plain(record.summary),
        "run": record.summary.name,
        "settings": public(record.settings),
        "versions": record.versions,
        "outcome": record.outcome,
        "validation": (record.outcome or {}).get("validation"),
        "consensus_distance": (record.outcome or {}).get("consensus"),
        **figures(total(row.statistics for row in workers)),
        "samples_per_s": cluster_rate(row.statistics for row in workers),
        "replicas_identical": record.summary.identical,
        "worker_count": len(workers),
        "workers": [worker_record(row) for row in workers],
        "events": [plain(event) for event in record.events],
    }


def ending_lines(record: StoredRun) -> list[str]:
    """Say how the model was chosen; nothing while the run goes, or for older runs."""
    outcome = record.outcome or {}
    lines = []
    if outcome.get("identical") is not None:
        distance = f"consensus distance {outcome.get('consensus') or 0.0:.3g}"
        lines.append(f"replicas: {'identical' if outcome['identical'] else 'different'}, {distance} when trained")
    if outcome.get("finish"):
        writer = "" if outcome.get("writer") is None else f", written by worker {outcome['writer']}"
        lines.append(f"finish: {outcome['finish']}{writer}")
    validation = outcome.get("validation")
    if validation and validation["chosen"] is not None:
        lines.append(f"validation score: {score_text(validation['chosen'])} ({validation['better']} is better)")
    lines += [f"model of worker {rank}: {path}" for rank, path in (outcome.get("ensemble") or {}).items()]
    return lines


def _print(record: StoredRun) -> None:
    console, summary = results(), record.summary
    state = f"{summary.state}, {duration_text(summary.wall_s, summary.total_s)}".removesuffix(", ")
    console.print(f"[bold]{escape(summary.name)}[/]: {state}", soft_wrap=True)
    settings = "  ".join(f"{key}={value}" for key, value in public(record.settings).items() if value is not None)
    versions = "  ".join(f"{key} {value}" for key, value in record.versions.items())
    for label, text in (("settings", settings), ("versions", versions)):
        console.print(f"{label}: {escape(text)}")
    best = summary.path / BEST_MODEL
    for label, text in (
        ("command", summary.command),
        ("folder", str(summary.path)),
        ("model", summary.model or "none"),
        ("best model", str(best) if best.exists() else ""),
        ("error", summary.error),
    ):
        if text:
            console.print(f"{label}: {escape(text)}", soft_wrap=True)  # whole, to be copied
    for line in ending_lines(record):
        console.print(escape(line), soft_wrap=True)
    validation = (record.outcome or {}).get("validation")
    scores = {int(rank): score for rank, score in validation["replicas"].items()} if validation else None
    console.print(worker_table(record.rows(record.latest()), scores=scores))
    together = total(record.latest().values())
    if together.bytes_sent:
        console.print(f"exchange: {exchange_text(together)}")
    if together.late:
        console.print(f"staleness: {staleness_text(together.late)}")
    began = min([summary.started, *(event.time for event in record.events)])  # a run that was resumed began before
    for event in record.events:
        line = f"[{event.time - began:6.1f} s] {event.kind}: {event.text}"
        console.print(escape(line), soft_wrap=True, style="dim")

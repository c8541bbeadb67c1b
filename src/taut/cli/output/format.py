"""Figures as people read them, and the figures of a worker that tables and JSON share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from msgspec.structs import asdict

from taut.core.messages import Statistics
from taut.core.staleness_counts import BOUNDS
from taut.supervisor.metrics import cluster_rate, rate, time_split, total
from taut.supervisor.metrics import compression as compression  # noqa: PLC0414 (for the displays)
from taut.supervisor.view import Outcome, ValidationScores, WorkerRow

RENAMED = {"identical": "replicas_identical", "exact": "replicas_promised_identical", "consensus": "consensus_distance"}
SAME = {True: "identical", False: "different", None: "-"}  # the replicas at the end


def times(factor: float | None) -> str:
    """Format a factor, or a dash.

    >>> times(117.3), times(None)
    ('117x', '-')
    """
    if factor is None:
        return "-"
    return f"{factor:.0f}x" if factor >= 10 else f"{factor:.1f}x"


def duration_text(wall_s: float | None, total_s: float | None) -> str:
    """Return how long a run trained, and how long all of it took: starting the workers and saving the model too.

    >>> duration_text(5.21, 12.1), duration_text(None, 3.0), duration_text(None, None)
    ('trained for 5.2 s, 12.1 s in all', '3.0 s in all', '')
    """
    trained = [] if wall_s is None or wall_s == total_s else [f"trained for {wall_s:.1f} s"]
    return ", ".join(trained + ([] if total_s is None else [f"{total_s:.1f} s in all"]))


def public(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without what taut keeps there for itself."""
    return {name: value for name, value in settings.items() if name != "explicit"}


def time_shares(statistics: Statistics) -> dict[str, float]:
    """Return the share of the wall time that each part of the work took; what no part claims is ``other``."""
    seconds, wall_s = time_split(statistics), statistics.wall_s
    return {part: spent / wall_s if wall_s > 0 else 0.0 for part, spent in seconds.items()}


def score_text(score: float | None) -> str:
    """Format a score, or a dash.

    >>> score_text(0.97222222), score_text(None)
    ('0.9722', '-')
    """
    return "-" if score is None else f"{score:.4g}"


def scores_text(validation: ValidationScores | None) -> str:
    """Format the span of the replicas' scores.

    >>> scores_text(ValidationScores({0: 0.5, 1: 0.75, 2: None}, 0.7))
    '0.5 to 0.75'
    """
    known = [score for score in validation.replicas.values() if score is not None] if validation else []
    if not known:
        return "-"
    low, high = score_text(min(known)), score_text(max(known))
    return low if low == high else f"{low} to {high}"


def figures(together: Statistics) -> dict[str, Any]:
    """Return the figures of all workers together for JSON."""
    counts = ("samples", "bytes_sent", "bytes_dense", "staleness")
    return {
        **{name: getattr(together, name) for name in counts},
        "staleness_counts": dict(zip((*map(str, BOUNDS), "more"), together.late, strict=False)),
        "compression": compression(together),
        "time_split": time_shares(together),
    }


def worker_figures(given: Statistics) -> dict[str, Any]:
    """Return the figures of one worker for JSON."""
    return {"samples_per_s": rate(given), "time_split": time_shares(given), "statistics": asdict(given)}


def worker_record(row: WorkerRow) -> dict[str, Any]:
    """Return one worker for JSON."""
    known = {name: getattr(row, name) for name in ("rank", "host", "pid", "state", "reason", "refused")}
    return {**known, "compression": compression(row.statistics), **worker_figures(row.statistics)}


def outcome_record(run: str, run_dir: str, settings: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
    """Return the end of a run for JSON."""
    rows = [outcome.workers[rank] for rank in sorted(outcome.workers)]
    return {
        "run": run,
        "folder": run_dir,
        "settings": public(settings),
        **{RENAMED.get(each.name, each.name): getattr(outcome, each.name) for each in fields(outcome)},
        **figures(total(row.statistics for row in rows)),
        "samples_per_s": cluster_rate(row.statistics for row in rows),
        "workers": [worker_record(row) for row in rows],
    }

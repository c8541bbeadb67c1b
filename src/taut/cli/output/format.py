"""Figures as people read them, and the figures of a worker that tables and JSON share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from taut.core.messages import Statistics
from taut.supervisor.metrics import cluster_rate, rate, time_split, total
from taut.supervisor.metrics import compression as compression  # noqa: PLC0414 (for the displays)
from taut.supervisor.view import Outcome, ValidationScores, WorkerRow


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


def validation_record(validation: ValidationScores | None) -> dict[str, Any] | None:
    """Return scores for JSON; None where the script gives no validation function."""
    if validation is None:
        return None
    return {
        "replicas": {str(rank): score for rank, score in validation.replicas.items()},
        "chosen": validation.chosen,
        "better": validation.better,
    }


def worker_record(row: WorkerRow) -> dict[str, Any]:
    """Return one worker for JSON."""
    given = row.statistics
    return {
        "rank": row.rank,
        "host": row.host,
        "pid": row.pid,
        "state": row.state,
        "reason": row.reason,
        "refused": row.refused,
        "samples_per_s": rate(given),
        "compression": compression(given),
        "time_split": time_shares(given),
        "statistics": {name: getattr(given, name) for name in given.__struct_fields__},
    }


def outcome_record(run: str, run_dir: str, settings: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
    """Return the end of a run for JSON."""
    rows = [outcome.workers[rank] for rank in sorted(outcome.workers)]
    together = total(row.statistics for row in rows)
    return {
        "run": run,
        "folder": run_dir,
        "settings": public(settings),
        "state": outcome.state,
        "exit_code": outcome.exit_code,
        "model": str(outcome.model) if outcome.model else None,
        "replicas_identical": outcome.identical,
        "replicas_promised_identical": outcome.exact,
        "digest": outcome.digest,
        "consensus_distance": outcome.consensus,
        "finish": outcome.finish,
        "writer": outcome.writer,
        "validation": validation_record(outcome.validation),
        "ensemble": {str(rank): str(path) for rank, path in outcome.ensemble.items()},
        "wall_s": outcome.wall_s,
        "total_s": outcome.total_s,
        "samples": together.samples,
        "samples_per_s": cluster_rate(row.statistics for row in rows),
        "samples_again": outcome.samples_again,
        "samples_undone": outcome.samples_undone,
        "bytes_sent": together.bytes_sent,
        "bytes_dense": together.bytes_dense,
        "compression": compression(together),
        "staleness": together.staleness,
        "time_split": time_shares(together),
        "failures": list(outcome.failures),
        "error": outcome.error,
        "workers": [worker_record(row) for row in rows],
    }

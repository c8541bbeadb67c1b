"""How a run ended, from what is known of it then. Pure; cluster.py asks for it."""

from __future__ import annotations

from pathlib import Path

from taut.supervisor.run.admission import Admission
from taut.supervisor.run.verdict import why_differ
from taut.supervisor.view import Outcome, grouped

NOBODY_LEFT = "no worker is left"


def outcome_of(roll: Admission, path: str, error: str, began_s: float, now: float) -> Outcome:
    """``path``: where the model is, or "" where there is none, for the reason ``error``; ``began_s``: when the supervisor
    did."""
    ledger, ending, verdict = roll.ledger, roll.ending, roll.ending.verdict
    if verdict is not None and verdict.exact and not verdict.identical:
        refused = {worker.rank: worker.refused for worker in roll.members.workers.values()}
        error = error or why_differ(ending.digests, refused)
    if error == NOBODY_LEFT and ledger.failures:
        error = f"{error} ({'; '.join(grouped(ledger.failures))})"
    return Outcome(
        state="finished" if path else "failed",
        exit_code=1 if error or ledger.script_failed else 0,
        identical=None if verdict is None else verdict.identical,
        exact=verdict is not None and verdict.exact,
        digest="" if verdict is None else verdict.digest,
        model=Path(path) if path else None,
        workers={row.rank: row for row in roll.members.rows(now)},
        failures=tuple(ledger.failures),
        samples_again=roll.leases.samples_again,
        samples_undone=roll.leases.samples_undone,
        consensus=ending.distance(),
        finish=roll.plan.finish,
        writer=None if ending.writer is None else ending.writer.rank,
        validation=ending.validation,
        ensemble={rank: file for rank, (file, _) in ending.kept.items()},
        wall_s=(ending.judged_s or now) - (ledger.started_s or began_s),
        error=error,
        total_s=now - began_s,
    )

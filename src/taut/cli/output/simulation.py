"""A simulation's result, for people and for JSON."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taut.cli.output.console import results
from taut.cli.output.display import exchange_text, worker_table
from taut.cli.output.format import figures, score_text, worker_figures
from taut.simulator.faults import fault_text, kind_of
from taut.supervisor.metrics import total
from taut.supervisor.view import WorkerRow

if TYPE_CHECKING:
    from taut.simulator.result import Simulated

SHOWN = 16  # workers, in the table


def record(found: Simulated, timing_only: bool) -> dict[str, Any]:
    """Return the result for JSON: the figures of ``taut run --json``, in virtual seconds, and those of simulations."""
    together = total(found.workers.values())
    return {
        "simulated": True,
        "timing_only": timing_only,
        "scenario": found.scenario.to_record(),
        "state": "failed" if found.error else "finished",
        "error": found.error,
        "wall_s": found.wall_s,
        **figures(together),
        "samples_per_s": together.samples / found.wall_s if found.wall_s else 0.0,
        "steps": together.steps,
        "consensus_distance": found.consensus,
        "replicas_identical": found.identical,
        "validation": found.validation,
        "scores": found.scores,
        "distances": found.distances,
        "evaluations": found.evaluations,
        "ended_early": found.ended_early,
        "gone": found.gone,
        "faults_never_happened": [{"kind": kind_of(fault), **asdict(fault)} for fault in found.missed],
        "counted": found.counted,
        "workers": [{"rank": rank, **worker_figures(given)} for rank, given in sorted(found.workers.items())],
    }


def show(found: Simulated, timing_only: bool, trace: Path | None) -> None:
    """Print the result for people."""
    console, together = results(), total(found.workers.values())
    rows = [
        WorkerRow(rank, "", 0, "gone" if rank in found.gone else "finished", given, 0.0, found.gone.get(rank, ""))
        for rank, given in sorted(found.workers.items())
    ]
    console.print(worker_table(rows[:SHOWN]))
    if len(rows) > SHOWN:
        console.print(f"... and {len(rows) - SHOWN} more workers")
    per_s = together.samples / found.wall_s if found.wall_s else 0.0
    speed = f"{per_s:,.0f} samples/s" if per_s else f"{together.steps / (found.wall_s or 1.0):,.0f} steps/s"
    console.print(f"{found.wall_s:,.3f} virtual seconds, {speed}", soft_wrap=True)
    if together.bytes_sent:
        console.print(f"exchange: {exchange_text(together)}", soft_wrap=True)
    for fault in found.missed:
        console.print(f"never happened: {fault_text(fault)} (the run was over by then)", style="yellow")
    if not timing_only:
        alike = "identical" if found.identical else f"{found.consensus:.2g} of the mean's norm apart"
        alike = "not compared" if len(found.gone) == len(found.workers) else alike
        score = "" if found.validation is None else f"; validation {score_text(found.validation.chosen)}"
        console.print(f"replicas: {alike}{score}")
    if found.evaluations:
        last_s, last = found.evaluations[-1]
        console.print(f"evaluations: {len(found.evaluations)}, the last one {last:g} after {last_s:,.3f} virtual seconds")
    if found.ended_early:
        console.print(found.ended_early, soft_wrap=True)
    console.print(
        f"simulated in {found.counted.get('real_s', 0.0):.1f} s, {found.counted.get('events', 0):,} events", style="dim"
    )
    if trace is not None:
        console.print(f"timeline: {trace} (open it at ui.perfetto.dev)")
    if found.script_error:
        sys.stderr.write(f"{found.script_error}\n")
    if found.error:
        sys.stderr.write(f"error: {found.error}\n")

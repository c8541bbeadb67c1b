"""A cell in virtual time: the scenario's machines, with the cell's strategy, topology, codec, workers and seed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from taut.comparison.runs.history import Reading, on_grid
from taut.comparison.runs.job import Job, Report
from taut.comparison.runs.matrix import Cell, Matrix, Skipped
from taut.comparison.runs.record import RunRecord, failed, of_cell, of_workers
from taut.errors import Misuse, TautError
from taut.supervisor.metrics import finite

if TYPE_CHECKING:
    from taut.simulator.result import Simulated
    from taut.simulator.scenario import Scenario

MOST_STALENESS_SAMPLES = 2000


def run_simulated(job: Job, cell: Cell, folder: Path, report: Report = lambda text: None) -> RunRecord:
    """Simulate a cell. A simulation that fails is a record too; a mistake in the scenario is raised as ``Misuse``."""
    scenario = scenario_of(job, cell)
    try:
        if job.timing_only:
            from taut.simulator.timing.simulation import simulate_timing

            simulated = simulate_timing(scenario, progress=lambda now_s: report(f"{now_s:.1f} virtual s"))
        else:
            from taut.simulator.script.run import simulate_script

            simulated = simulate_script(
                scenario, progress=lambda now_s, steps: report(f"{now_s:.1f} virtual s, {steps:,} steps")
            )
    except Misuse:
        raise
    except TautError as error:
        return failed(job, cell, str(error))
    return failed(job, cell, simulated.error) if simulated.error else record_of(job, cell, simulated)


def scenario_of(job: Job, cell: Cell) -> Scenario:
    """Return the job's machines with the cell's choices."""
    assert job.scenario is not None
    return replace(
        job.scenario,
        strategy=cell.strategy,
        topology=cell.named.get("topology", ""),
        codec=cell.named.get("codec", ""),
        finish=cell.named.get("finish", ""),
        workers=cell.workers,
        seed=cell.seed,
        script=str(job.file),
        args=job.arguments(cell),
    )


def fitting(job: Job, matrix: Matrix) -> Matrix:
    """Drop the cells that the scenario does not fit, such as a straggler of rank 7 among four workers."""
    cells: list[Cell] = []
    skipped: dict[str, Skipped] = {one.what: one for one in matrix.skipped}
    for cell in matrix.cells:
        try:
            scenario_of(job, cell).check()
            cells.append(cell)
        except Misuse as error:
            what = str(replace(cell, seed=0)).removesuffix(", seed 0")
            skipped.setdefault(what, Skipped(what, str(error)))
    if matrix.cells and not cells:
        raise Misuse(next(reversed(skipped.values())).reason, "a scenario that fits at least one number of workers")
    return Matrix(tuple(cells), tuple(skipped.values()))


def record_of(job: Job, cell: Cell, simulated: Simulated) -> RunRecord:
    """Return the record of a simulation."""
    readings = [Reading(one.time_s, one.rank, one.samples, one.bytes_sent, one.loss) for one in simulated.history]
    validation = simulated.validation
    workers = [simulated.workers[rank] for rank in sorted(simulated.workers)]
    stale = [one.staleness for one in simulated.history if one.steps and math.isfinite(one.staleness)]
    every = max(1, math.ceil(len(stale) / MOST_STALENESS_SAMPLES))
    return RunRecord(
        **of_cell(job, cell) | of_workers(workers, on_grid(readings, simulated.wall_s)),
        wall_s=simulated.wall_s,
        consensus_distance=None if job.timing_only else finite(simulated.consensus),
        score=None if validation is None else finite(validation.chosen),
        better="higher" if validation is None else validation.better,
        identical=simulated.identical,
        scores=_finite(simulated.scores),
        distances=_finite(simulated.distances),
        staleness_samples=tuple(stale[::every]),
    )


def _finite(curve: Iterable[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    return tuple((float(at), float(height)) for at, height in curve if math.isfinite(height))

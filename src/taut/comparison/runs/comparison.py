"""All cells of a matrix, one after the other; what was made before is not made again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from taut.comparison.report.findings import findings
from taut.comparison.report.table import Table, summarise, tidy
from taut.comparison.runs.job import Job, Runner
from taut.comparison.runs.matrix import Cell, Matrix, Skipped, expand
from taut.comparison.runs.real_run import run_really
from taut.comparison.runs.record import RunRecord, keep, kept
from taut.comparison.runs.simulated_run import fitting, run_simulated
from taut.comparison.runs.target import Metric, Target, check_target, metric_of, parse_target

if TYPE_CHECKING:
    from taut.simulator.scenario import Scenario


class Watcher:
    """A listener to the progress of a comparison; this one does nothing."""

    def begin(self, cells: int, kept: int) -> None:
        """Hear how many runs there are in all, and how many of them were made before."""

    def started(self, cell: Cell) -> None: ...

    def going(self, text: str) -> None:
        """Hear how far the present run is, where that is known."""

    def ended(self, cell: Cell, record: RunRecord) -> None: ...


@dataclass(frozen=True)
class Comparison:
    """The runs and what they show. ``records``: the runs that were made, in the matrix's order; ``missing``: how many
    were not, since the comparison was interrupted. ``table`` has a row for each run, ``summary`` one for each
    configuration."""

    folder: Path
    job: Job
    matrix: Matrix
    records: tuple[RunRecord, ...]
    wanted: str | float | None = None  # the target, as it was given
    command: str = ""  # what was typed

    @property
    def missing(self) -> int:
        return len(self.matrix.cells) - len(self.records)

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        return self.matrix.skipped

    @cached_property
    def target(self) -> Target | None:
        return None if self.wanted is None else parse_target(self.wanted, self.records)

    @cached_property
    def metric(self) -> Metric:
        """Return the measure of quality: the validation score, or else the training loss."""
        return metric_of(self.records)

    @cached_property
    def table(self) -> Table:
        return tidy(self.records, self.target)

    @cached_property
    def summary(self) -> Table:
        return summarise(self.table)

    @cached_property
    def findings(self) -> list[str]:
        """Return the findings in words."""
        return findings(self.summary, self.records, self.target)

    def write(self) -> Path:
        """Write the report into the folder, and return the path of its page."""
        from taut.comparison.report.files import write_report

        return write_report(self)


def compare(
    script: str | Path,
    *,
    strategies: Sequence[str],
    codecs: Sequence[str] = (),
    topologies: Sequence[str] = (),
    workers: Sequence[int] = (4,),
    seeds: int | Sequence[int] = 3,
    args: Sequence[str] = (),
    scenario: Scenario | None = None,
    timing_only: bool = False,
    target: str | float | None = None,
    finish: str | None = None,
    out: str | Path | None = None,
    resume: bool = True,
    report: bool = True,
) -> Comparison:
    """Run the matrix and write the report to ``out`` (default: ``taut-compare/SCRIPT``).

    With a ``scenario`` the runs are simulated on its machines, else they are real. ``args`` are the script's; ``{seed}``
    and ``{workers}`` in them become the run's. Ctrl-C raises ``KeyboardInterrupt``; called again, it goes on from there::

        made = taut.comparison.compare("train.py", strategies=["sync", "async"], workers=[2, 4], target=0.95)
        made.table.to_pandas().groupby(["strategy", "workers"]).score.mean()
    """
    numbers = range(seeds) if isinstance(seeds, int) else seeds
    matrix = expand(strategies, codecs, topologies, workers, list(numbers), finish, ambient=scenario is None)
    job = Job(Path(script), tuple(args), scenario=scenario, timing_only=timing_only)
    made = conduct(job, matrix, Path(out) if out is not None else default_folder(job), target=target, resume=resume)
    if report:
        made.write()
    return made


def default_folder(job: Job) -> Path:
    """Return the folder for a script: always the same, so that the same command goes on where it was left."""
    return Path("taut-compare") / job.script.stem


class Interrupted(KeyboardInterrupt):
    """Ctrl-C. ``comparison`` has the runs that were finished by then."""

    def __init__(self, comparison: Comparison) -> None:
        super().__init__()
        self.comparison = comparison


def conduct(
    job: Job,
    matrix: Matrix,
    folder: Path,
    *,
    target: str | float | None = None,
    resume: bool = True,
    watcher: Watcher | None = None,
    runner: Runner | None = None,
    command: str = "",
) -> Comparison:
    """Make the missing runs of the matrix. A run that fails is kept as failed, and the others go on; it is tried again
    the next time. Ctrl-C raises ``Interrupted``."""
    if target is not None:
        check_target(target)  # before hours of runs, not after them
    matrix = fitting(job, matrix) if job.simulated else matrix
    watcher, runner = watcher or Watcher(), runner or (run_simulated if job.simulated else run_really)
    names = [job.name(cell) for cell in matrix.cells]
    found = [
        kept(folder, name, job.key(cell)) if resume else None for cell, name in zip(matrix.cells, names, strict=True)
    ]
    watcher.begin(len(found), sum(record is not None for record in found))

    def made() -> Comparison:
        records = tuple(record for record in found if record is not None)
        return Comparison(folder, job, matrix, records, target, command)

    try:
        for index, cell in enumerate(matrix.cells):
            if found[index] is None:
                watcher.started(cell)
                record = runner(job, cell, folder, watcher.going)
                keep(folder, names[index], record)
                found[index] = record
                watcher.ended(cell, record)
    except KeyboardInterrupt:
        raise Interrupted(made()) from None
    return made()

"""``taut compare``: a matrix of runs, real or simulated, and a report on them."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from taut.cli.commands.compare_scenario import simulated_job
from taut.cli.launch import check_script
from taut.cli.machines import Machines
from taut.cli.options import (
    Given,
    Json,
    Quiet,
    ScriptArgs,
    complete_codec,
    complete_strategy,
    complete_topology,
    output_flag,
    run_flag,
    with_flags,
)
from taut.cli.output.console import notes, print_json, results
from taut.early_sigint import INTERRUPTED
from taut.errors import Misuse

if TYPE_CHECKING:
    from taut.comparison.runs.comparison import Comparison
    from taut.comparison.runs.job import Job
    from taut.comparison.runs.matrix import Matrix
    from taut.comparison.runs.record import RunRecord

Choices = list[str] | None


@with_flags(
    "finish target simulate timing_only steps parameters threads time_limit machines out resume keep_models config"
)
def compare(
    *,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="The training script.", show_default=False)],
    args: ScriptArgs = None,
    strategies: Annotated[
        list[str],
        run_flag(help="As in sync,ssp:3,async; may be repeated.", autocompletion=complete_strategy, show_default=False),
    ],
    codecs: Annotated[
        Choices, run_flag(help="As in dense,threshold; default: the strategy's own.", autocompletion=complete_codec)
    ] = None,
    topologies: Annotated[
        Choices, run_flag(help="As in ring,torus; default: the strategy's own.", autocompletion=complete_topology)
    ] = None,
    workers: Annotated[Choices, run_flag("--workers", "-n", help="As in 4,8,16; default: 4.")] = None,
    seeds: Annotated[int, run_flag(help="Every run so many times: seeds 0, 1, ...")] = 3,
    given: Given,
    target: Annotated[
        str | None, run_flag(help="Quality to be reached: 0.95 (score, or loss where there is none), loss=0.1.")
    ] = None,
    simulate: Annotated[
        bool, run_flag("--simulate/--real", help="In virtual time, or with taut run on this machine.")
    ] = False,
    timing_only: Annotated[bool, run_flag("--timing-only", help="With --simulate: nothing is trained.")] = False,
    steps: Annotated[int | None, run_flag(help="With --simulate: per worker.")] = None,
    parameters: Annotated[int | None, run_flag(help="Of the model, for --timing-only.")] = None,
    time_limit: Annotated[float | None, run_flag(help="With --real: seconds after which a run is stopped.")] = None,
    machines: Machines,
    out: Annotated[Path | None, output_flag(help="Folder; default: taut-compare/SCRIPT.")] = None,
    resume: Annotated[
        bool, output_flag("--resume/--again", help="Keep finished runs of the folder, or make all again.")
    ] = True,
    keep_models: Annotated[bool, output_flag("--keep-models", help="Of real runs.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run SCRIPT with every combination, several times, and write a report.

    {seed} and {workers} in the script's arguments become the run's own. Ctrl-C leaves what is done; the same command goes
    on from there. The report is FOLDER/report.html, with pictures, tables and the commands of every run beside it.
    """
    from taut.comparison.runs.comparison import default_folder
    from taut.comparison.runs.job import Job

    threads, config = given.flags["threads"], given.config
    matrix = wanted(strategies, codecs, topologies, workers, seeds, given, simulate)
    of_simulations = {"--timing-only": timing_only, "--steps": steps, "--parameters": parameters}
    of_real_runs = {"--time-limit": time_limit, "--threads": threads, "--config": config, "--keep-models": keep_models}
    check_kind(simulate, of_simulations | dict.fromkeys(machines.words()[::2], True), of_real_runs)
    job = Job(Path(script), tuple(args or ()), time_limit_s=time_limit, keep_models=keep_models)
    folder = out or default_folder(job)
    silent = quiet or as_json
    if simulate:
        job = simulated_job(job, machines, steps, parameters, timing_only, folder, silent)
    else:
        check_script(job.script)
        given_flags = {"--threads": threads, "--config": config}
        words = [word for flag, value in given_flags.items() if value is not None for word in (flag, str(value))]
        job = replace(job, flags=tuple(words))
    made, code = conducted(job, matrix, folder, target, resume, silent)
    page = made.write()
    if as_json:
        print_json(record(made, page))
    elif not quiet:
        show(made, page)
    raise typer.Exit(code or int(any(not record.finished for record in made.records)))


def wanted(
    strategies: list[str],
    codecs: Choices,
    topologies: Choices,
    workers: Choices,
    seeds: int,
    given: Given,
    simulate: bool,
) -> Matrix:
    """Return the matrix that the flags describe."""
    from taut.codecs.registry import REGISTRY as CODECS
    from taut.comparison.runs.listing import split_all, whole_numbers
    from taut.comparison.runs.matrix import expand
    from taut.strategies.registry import REGISTRY as STRATEGIES
    from taut.topologies.registry import REGISTRY as TOPOLOGIES

    if seeds < 1:
        raise Misuse(f"--seeds = {seeds}", "at least 1", "3 show the spread between them")
    matrix = expand(
        split_all(strategies, STRATEGIES),
        split_all(codecs or [], CODECS),
        split_all(topologies or [], {*TOPOLOGIES, "edges", "file"}),
        whole_numbers(workers or ["4"], "--workers"),
        range(seeds),
        given.flags["finish"],
        None if simulate else given.config,
        not simulate,
    )
    if not matrix.cells:
        reason = matrix.skipped[0].reason if matrix.skipped else "nothing was named"
        raise Misuse("no combination is left", "strategies, codecs and topologies that go together", reason)
    return matrix


def check_kind(simulate: bool, of_simulations: Mapping[str, object], of_real_runs: Mapping[str, object]) -> None:
    """Refuse a flag that means nothing to this kind of run."""
    wrong = [flag for flag, value in (of_real_runs if simulate else of_simulations).items() if value]
    if wrong:
        beside = "--real" if simulate else "--simulate"
        raise Misuse(wrong[0], f"{beside} beside it", f"add {beside}, or leave {wrong[0]} out")


def conducted(
    job: Job, matrix: Matrix, folder: Path, target: str | None, resume: bool, silent: bool
) -> tuple[Comparison, int]:
    """Make all runs. Return the comparison, also of those made before an interruption, and the exit code."""
    from taut.comparison.report.progress import Progress
    from taut.comparison.runs.comparison import Interrupted, conduct

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    command = shlex.join(["taut", *sys.argv[1:]])
    try:
        with Progress(notes(), silent) as watcher:
            made = conduct(job, matrix, folder, target=target, resume=resume, watcher=watcher, command=command)
        return made, 0
    except Interrupted as stopped:
        if not silent:
            notes().print("interrupted: the same command goes on from here", style="yellow")
        return stopped.comparison, INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)


def record(made: Comparison, page: Path) -> dict[str, Any]:
    """Return the one object of ``--json``."""
    return {
        "folder": made.folder,
        "report": page,
        "simulated": made.job.simulated,
        "target": None if made.target is None else str(made.target),
        "findings": made.findings,
        "summary": made.summary,
        "runs": made.table,
        "missing": made.missing,
        "skipped": made.skipped,
    }


def show(made: Comparison, page: Path) -> None:
    """Print the table, as wide as the terminal lets it be, the findings, and where the report is."""
    from taut.cli.output.tables import fitting_table
    from taut.comparison.report.columns import columns
    from taut.comparison.report.files import remarks
    from taut.comparison.report.page import about
    from taut.comparison.report.progress import reason_of

    console = results()
    listed = columns(made.summary, made.metric, made.target is not None)
    if made.summary:
        console.print(fitting_table(made.summary, listed, console.width))
    console.print(about(made), style="dim", markup=False)
    for text in (*made.findings, *remarks(made)):
        console.print(f"- {text}", markup=False)
    failed: dict[str, list[RunRecord]] = {}
    for each in [each for each in made.records if not each.finished]:
        failed.setdefault(reason_of(each), []).append(each)
    for same in failed.values():
        runs = "failed" if len(same) == 1 else f"{len(same)} runs failed in the same way, for example"
        console.print(f"{runs}: {same[0].command}\n  {same[0].error}", style="red", markup=False, soft_wrap=True)
    for one in made.skipped:
        console.print(f"left out: {one.what}: {one.reason}", style="dim", markup=False)
    console.print(f"report: {page}", markup=False, soft_wrap=True)

"""The soak: random faults over every strategy, in virtual time, and the laws after each. ``make soak``, or

    python -m taut.testing.soak.soak --plans 1000            as many plans, on all cores
    python -m taut.testing.soak.soak --seed 17               one of them again
    python -m taut.testing.soak.soak --seed 17 --trace f     with a timeline for ui.perfetto.dev

Exit code 1 if a law was broken; the seeds are printed, each with the command that replays it.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from taut.errors import Misuse, TautError
from taut.testing.soak.cases import STRATEGIES, CaseResult, case_of, check_case, check_seed

PLANS = 1_000


@dataclass
class Tallied:
    """The results so far."""

    checked: int = 0
    cpu_s: float = 0.0
    virtual_s: float = 0.0
    failed: list[CaseResult] = field(default_factory=list)

    def add(self, one: CaseResult) -> None:
        self.checked += 1
        self.cpu_s += one.cpu_s
        self.virtual_s += one.virtual_s
        if one.broken:
            self.failed.append(one)


def replay_command(seed: int) -> str:
    """Return the command that runs this plan again, exactly.

    >>> replay_command(17)
    'python -m taut.testing.soak.soak --seed 17 --trace soak-17.json'
    """
    return f"python -m taut.testing.soak.soak --seed {seed} --trace soak-{seed}.json"


def told(one: CaseResult) -> str:
    """Return a text about a plan that broke a law."""
    broken = "".join(f"\n  broken: {law}" for law in one.broken)
    return f"seed {one.case.seed}: {one.case}{broken}\n  again:  {replay_command(one.case.seed)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = _parse(arguments)
    console = Console(stderr=True)
    try:
        if given.seed is not None:
            return _replay(given.seed, given.trace, console)
        return _soak(range(given.first, given.first + given.plans), given.jobs, console)
    except TautError as error:
        console.print(f"error: {error}", markup=False, highlight=False)
        return error.exit_code
    except KeyboardInterrupt:
        console.print("interrupted", style="yellow")
        return 130


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m taut.testing.soak.soak", description="Random faults over every strategy."
    )
    parser.add_argument("--plans", type=int, default=PLANS, help="how many (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (%(default)s)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes (%(default)s)")
    parser.add_argument("--seed", type=int, help="one plan alone, told in full")
    parser.add_argument("--trace", type=Path, help="with --seed: write a timeline to this file")
    given = parser.parse_args(arguments)
    for name, least in (("plans", 1), ("first", 0), ("jobs", 1), ("seed", 0)):
        value = getattr(given, name)
        if value is not None and value < least:
            parser.error(f"--{name} {value}: expected a whole number from {least} up")
    return given


def _soak(seeds: range, jobs: int, console: Console) -> int:
    tallied, began_s = Tallied(), time.perf_counter()
    try:
        with _progress(console, len(seeds)) as bar:
            task = bar.task_ids[0]
            for one in _checked(seeds, jobs):
                tallied.add(one)
                bar.update(task, advance=1, failed=len(tallied.failed))
                if one.broken:
                    bar.console.print(told(one), markup=False, highlight=False, soft_wrap=True)
    finally:
        real_s = time.perf_counter() - began_s
        figures = f"{tallied.cpu_s:.0f} s of processors, {tallied.virtual_s:.0f} s of virtual time, {real_s:.0f} s"
        console.print(
            f"{tallied.checked} plans over {len(STRATEGIES)} strategies: {figures}", highlight=False, soft_wrap=True
        )
    if tallied.failed:
        failed = ", ".join(str(one.case.seed) for one in tallied.failed)
        console.print(f"{len(tallied.failed)} broke a law: seeds {failed}", style="red", highlight=False)
        return 1
    console.print("no law was broken", style="green")
    return 0


def _checked(seeds: range, jobs: int) -> Iterator[CaseResult]:
    """Check the seeds in as many processes: a fresh one each, since torch and threads do not survive a fork."""
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(seeds)), _settle_in) as pool:
        yield from pool.imap_unordered(check_seed, seeds, chunksize=2)


def _settle_in() -> None:
    """Leave Ctrl-C to the parent, and have lost workers save to a folder that is thrown away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("taut").setLevel(logging.ERROR)  # workers that are back after an eviction say so
    os.chdir(tempfile.gettempdir())


def _progress(console: Console, plans: int) -> Progress:
    failed = TextColumn("[red]{task.fields[failed]} failed[/red]")
    bar = Progress(TextColumn("soak"), BarColumn(), MofNCompleteColumn(), failed, TimeRemainingColumn(), console=console)
    bar.add_task("soak", total=plans, failed=0)
    return bar


def _replay(seed: int, trace: Path | None, console: Console) -> int:
    from taut.simulator.trace import Trace

    case = case_of(seed)
    console.print(f"{case}\n{case.plan.describe()}", markup=False, highlight=False, soft_wrap=True)
    if trace is not None and not trace.absolute().parent.is_dir():
        raise Misuse(f"--trace {trace}", "a file in a folder that exists")
    timeline = Trace({"soak": seed}) if trace is not None else None
    one = check_case(case, timeline)
    if timeline is not None and trace is not None:
        timeline.write(trace)
    if one.broken:
        console.print(told(one), markup=False, highlight=False, soft_wrap=True)
        return 1
    console.print(f"no law was broken; {one.virtual_s:.1f} s of virtual time", style="green", highlight=False)
    return 0

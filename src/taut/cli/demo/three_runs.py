"""``taut demo``: one worker alone, `sync` and `async`, on slow links, with a slow worker and one that is killed."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from taut.cli.commands.run import LocalRun
from taut.cli.demo.figures import Training, read_notes, sentences
from taut.cli.output.console import results
from taut.cli.output.display import Display
from taut.cli.output.format import SAME
from taut.cli.run_end import check_joined, report_failures
from taut.config import Settings, cores
from taut.early_sigint import INTERRUPTED
from taut.errors import RunFailed
from taut.quantities import size
from taut.supervisor.metrics import total
from taut.supervisor.view import Outcome

SECONDS = 14.0  # of each of the three trainings
LINK = "100mbit"
SLOW_TIMES = 2.0
SCRIPT = Path(__file__).parents[1] / "jobs" / "timed_digits.py"


@dataclass(frozen=True)
class DemoFaults:
    """The faults of a training: worker ``slow`` is slowed down, ``killed`` is killed after ``kill_after_s``."""

    seconds: float
    slow: int
    killed: int
    kill_after_s: float

    def describe(self, settings: Settings) -> str:
        """Describe the faults in one sentence."""
        slow = f"worker {self.slow} works at 1/{SLOW_TIMES:g} of its speed"
        kill = f"is killed after {self.kill_after_s:g} s"
        fate = f"{slow} and {kill}" if self.slow == self.killed else f"{slow}, worker {self.killed} {kill}"
        return f"{settings.workers} workers, links of {settings.link}; {fate}"


def default_workers() -> int:
    """Return two workers for each core, four at most: their steps are pauses for the most part."""
    return min(4, 2 * cores())


def compare_on(settings: Settings, seconds: float, display: Display, start: str | None, plot: bool) -> ThreeRuns:
    """Train three times for so many ``seconds``: one worker alone, `sync`, and the strategy that was asked for."""
    faults = DemoFaults(seconds, settings.workers - 1, 1, round(seconds / 2, 1))
    plain = replace(settings, topology="complete", finish=None, name=None, port=0)
    alone = replace(plain, strategy="async", workers=1, threads=settings.threads_per_worker, link=None).fitted()
    lockstep = replace(plain, strategy="sync", codec="dense").fitted()

    def say(text: str) -> None:
        if not display.quiet:
            display.note(text, "bold")

    say(f"1 of 3: one worker alone, {seconds:g} s")
    first = train("one worker", alone, replace(faults, slow=-1, killed=-1), display, start)
    say(f"2 of 3: sync, {faults.describe(settings)}")
    second = train("sync", lockstep, faults, display, start)
    say(f"3 of 3: {settings.strategy}, {faults.describe(settings)}")
    third = train(settings.strategy, settings, faults, display, start)
    made = ThreeRuns(settings, faults, (first, second, third))
    return replace(made, picture=made.draw(third.model.parent / "demo.png")) if plot else made


def train(name: str, settings: Settings, faults: DemoFaults, display: Display, start: str | None) -> Training:
    """Train once, and read what the workers noted."""
    args = ["--seconds", f"{faults.seconds:g}", "--seed", str(settings.seed)]
    if settings.strategy == "sync":
        args += ["--rate-times", f"{math.sqrt(settings.workers):g}"]  # as is usual for Adam, with a larger batch
    if faults.killed >= 0:
        args += ["--slow", str(faults.slow), "--slow-times", f"{SLOW_TIMES:g}"]
        args += ["--kill", str(faults.killed), "--kill-after", f"{faults.kill_after_s:g}"]
    run = LocalRun(settings, SCRIPT, args, start=start, command=shlex.join(sys.argv), folder_flag="--notes")
    outcome, model = finished(run, SCRIPT, display)
    notes = read_notes(run.folder)
    killed = faults.killed if faults.killed in notes.steps and settings.workers > 1 else None
    return Training(
        name=name,
        run=run.name,
        model=model,
        workers=settings.workers,
        curve=notes.curve(),
        samples_per_s=notes.samples_per_s,
        bytes_sent=total([row.statistics for row in outcome.workers.values()]).bytes_sent,
        identical=outcome.identical if settings.workers > 1 else None,
        killed_s=None if killed is None else notes.killed_s(killed),
        pause_s=None if killed is None else notes.longest_pause_s(killed),
    )


def finished(run: LocalRun, script: Path, display: Display) -> tuple[Outcome, Path]:
    """Train to the end, and return the outcome and the model; anything else, Ctrl-C too, ends the demo."""
    ended = run.conduct(Display(display.console, display.quiet))
    if ended.outcome is None or ended.exit_code:
        report_failures(ended, run.engine, display)
    check_joined(ended, script)
    if ended.interrupted or ended.drained:
        raise typer.Exit(INTERRUPTED)
    if ended.outcome is None:
        raise RunFailed("another supervisor has taken over")
    if ended.outcome.model is None or ended.exit_code:
        raise RunFailed(ended.outcome.error or "; ".join(ended.outcome.failures) or "the run failed")
    return ended.outcome, ended.outcome.model


def show_table(title: str, headings: Sequence[str], rows: Mapping[str, Sequence[str]]) -> Console:
    """Print a table with a column for each training, and return the console."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    for heading in headings:
        table.add_column(heading, justify="right")
    for label, cells in rows.items():
        table.add_row(label, *cells)
    console = results()
    console.print(table)
    return console


def show_files(console: Console, **files: Path | None) -> None:
    """Print where the files are that were made."""
    for name, path in files.items():
        if path is not None:
            console.print(f"{name.replace('_', ' ')}: {path}", soft_wrap=True, markup=False)


@dataclass(frozen=True)
class ThreeRuns:
    """The three trainings, side by side."""

    settings: Settings
    faults: DemoFaults
    trainings: tuple[Training, Training, Training]
    picture: Path | None = None

    @property
    def target(self) -> float:
        """Return the loss that one worker alone ends with."""
        return self.trainings[0].last.loss

    def words(self) -> list[str]:
        """Describe the results in two sentences."""
        return sentences(self.trainings[0], self.trainings[1:], self.target)

    def show(self) -> None:
        """Print the table, the sentences, and where model and picture are."""
        headings = [each.name + ("" if each.workers == 1 else f"\n{each.workers} workers") for each in self.trainings]
        console = show_table(f"digits, {self.faults.seconds:g} s each", headings, self.rows())
        for sentence in self.words():
            console.print(sentence, highlight=False, markup=False)
        show_files(console, model=self.trainings[-1].model, curves=self.picture)

    def rows(self) -> Mapping[str, Sequence[str]]:
        """Return the table's rows."""
        runs = self.trainings
        return {
            f"seconds to a loss of {self.target:.2f}": [_seconds(each.time_to(self.target), 1) for each in runs],
            "loss at the end, held out": [f"{each.last.loss:.2f}" for each in runs],
            "accuracy at the end": [f"{100 * each.last.accuracy:.1f}%" for each in runs],
            "samples/s": [f"{each.samples_per_s:,.0f}" for each in runs],
            "sent": [size(each.bytes_sent) for each in runs],
            "longest pause after the kill": [_seconds(each.pause_s, 2) for each in runs],
            "replicas at the end": [SAME[each.identical] for each in runs],
        }

    def draw(self, path: Path) -> Path:
        """Draw the three curves over seconds, with the kill."""
        from taut.cli.demo.plots import plot_comparison

        return plot_comparison(self.trainings, self.target, self.faults.describe(self.settings), path)

    def record(self) -> dict[str, Any]:
        """Return the one object of ``--json``."""
        return {
            "seconds": self.faults.seconds,
            "workers": self.settings.workers,
            "threads_per_worker": self.settings.threads_per_worker,
            "link": self.settings.link,
            "seed": self.settings.seed,
            "slow": {"worker": self.faults.slow, "times": SLOW_TIMES},
            "killed": {"worker": self.faults.killed, "after_s": self.faults.kill_after_s},
            "target_loss": self.target,
            "trainings": {
                each.name: {**asdict(each), "time_to_target_s": each.time_to(self.target)} for each in self.trainings
            },
            "words": self.words(),
            "plot": self.picture,
        }


def _seconds(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"

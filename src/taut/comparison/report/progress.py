"""Progress on a terminal: a bar over all runs; elsewhere a line for each run that ended."""

from __future__ import annotations

import re
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Column

from taut.comparison.report.labels import figure, seconds
from taut.comparison.runs.comparison import Watcher
from taut.comparison.runs.matrix import Cell
from taut.comparison.runs.record import RunRecord


class Progress(Watcher):
    """A watcher that writes to ``console`` unless it is ``silent``."""

    def __init__(self, console: Console, silent: bool = False) -> None:
        self.console, self.silent = console, silent
        self._count, self._done = 0, 0
        self._cell = ""
        self._failed: dict[str, int] = {}  # errors, and the number of the run that had each first
        self._bar = Bar(
            SpinnerColumn(),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True)),  # what is left of the line
            expand=True,
            console=console,
            transient=True,
            disable=silent or not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def begin(self, cells: int, kept: int) -> None:
        self._count, self._done = cells, kept
        self._bar.reset(self._task, total=cells - kept)  # what was there already says nothing about the time that is left
        known = f", {kept} of them made before" if kept else ""
        self._print(f"{cells} runs{known}", "dim")

    def started(self, cell: Cell) -> None:
        self._cell = str(cell)
        self._bar.update(self._task, description=escape(self._cell))

    def going(self, text: str) -> None:
        self._bar.update(self._task, description=escape(f"{self._cell}: {text}"))

    def ended(self, cell: Cell, record: RunRecord) -> None:
        self._done += 1
        self._bar.advance(self._task)
        said = told(record)
        if not record.finished:
            first = self._failed.setdefault(reason_of(record), self._done)
            said = said if first == self._done else f"failed, as run {first}"
        self._print(f"[{self._done}/{self._count}] {cell}: {said}")

    def _print(self, text: str, style: str = "") -> None:
        if not self.silent:
            self.console.print(text, style=style, markup=False, soft_wrap=True)


def reason_of(record: RunRecord) -> str:
    """Return the error, without saying which workers had it.

    >>> reason_of(RunRecord("k", "sync", "ring", "dense", 2, 0, error="worker 1: no data"))
    'worker: no data'
    """
    return re.sub(r"workers? \d+(, \d+)*", "worker", record.error)


def told(record: RunRecord) -> str:
    """Say in a few words how a run ended.

    >>> told(RunRecord("k", "sync", "ring", "dense", 2, 0, wall_s=2.0, score=0.95, samples_per_s=1234.0))
    'score 0.95, 1,234 samples/s, 2.0 s'
    """
    if not record.finished:
        return f"failed: {record.error}"
    quality = f"score {figure(record.score)}" if record.score is not None else f"loss {figure(record.loss)}"
    return f"{quality}, {figure(record.samples_per_s)} samples/s, {seconds(record.wall_s)}"

"""How a comparison goes, in a terminal."""

from __future__ import annotations

import io

from made_up import record
from rich.console import Console

from taut.comparison.report.progress import Progress
from taut.comparison.runs.matrix import Cell


def test_an_error_that_many_runs_have_is_said_once() -> None:
    out = io.StringIO()
    progress = Progress(Console(file=out, width=200))
    progress.begin(4, 0)
    cell = Cell("sync", "complete", "dense", workers=2, seed=0)
    for error in ("worker 1: no data", "worker 0: no data", "workers 0, 1: no data", "out of memory"):
        progress.ended(cell, record(state="failed", error=error))
    lines = [line.partition("seed 0: ")[2] for line in out.getvalue().splitlines()[1:]]
    assert lines == ["failed: worker 1: no data", "failed, as run 1", "failed, as run 1", "failed: out of memory"]

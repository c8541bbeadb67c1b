"""A cell as a real run: ``taut run`` in a process of its own, then what its supervisor kept."""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from taut.comparison.runs.history import Reading, on_grid
from taut.comparison.runs.job import Job, Report
from taut.comparison.runs.matrix import Cell
from taut.comparison.runs.record import RunRecord, failed, of_cell, of_workers
from taut.errors import Misuse
from taut.supervisor.metrics import finite
from taut.supervisor.storage.store_reader import StoredRun, load_run, statistics_of
from taut.supervisor.storage.store_writer import FIELDS
from taut.supervisor.view import grouped

LAST_LINES = 3
DRAIN_S, STOP_S = 2.0, 10.0


def run_really(job: Job, cell: Cell, folder: Path, report: Report = lambda text: None) -> RunRecord:
    """Make the run in ``folder``/taut-runs. One that fails is a record too."""
    runs_dir, name = (folder / "taut-runs").resolve(), job.name(cell)
    shutil.rmtree(runs_dir / name, ignore_errors=True)  # what an interrupted attempt left
    where = ["--json", "--name", name, "--runs-dir", str(runs_dir)]
    command = [sys.executable, "-m", "taut.cli.main", "run", *where, *job.run_flags(cell)]
    code, out, err = _finished([*command, str(job.script), *job.arguments(cell)], job.time_limit_s)
    if code in (-signal.SIGINT, 130):
        raise KeyboardInterrupt
    try:
        said: dict[str, Any] = json.loads(out)
    except ValueError:
        return failed(job, cell, _last_lines(err))
    if code != 0 or said["state"] != "finished":
        return failed(job, cell, said.get("error") or "; ".join(grouped(said.get("failures") or [])) or _last_lines(err))
    try:
        stored = load_run(runs_dir, name)
    except Misuse as error:
        return failed(job, cell, str(error))
    if not job.keep_models:
        _drop_models(runs_dir / name)
    return _record(job, cell, said, stored)


def _finished(command: list[str], limit_s: float | None) -> tuple[int, str, str]:
    """Run the command, and return its exit code and output. An interruption stops the run, too."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            _stop(process)
            return 1, "", f"it was stopped after {limit_s:g} s"
        except BaseException:
            _stop(process)
            raise
    return process.returncode, out, err


def _stop(process: subprocess.Popen[str]) -> None:
    """Stop the run: the first signal drains it, the second ends it at once."""
    for patience_s in (DRAIN_S, STOP_S):
        process.terminate()
        try:
            process.communicate(timeout=patience_s)
            return
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    process.communicate()


def _last_lines(err: str) -> str:
    lines = [line.removeprefix("error: ") for line in err.splitlines() if line.strip()]
    return " / ".join(lines[-LAST_LINES:])


def _drop_models(run: Path) -> None:
    """Remove the models, which would fill the disk; figures and logs stay."""
    for pattern in ("*.safetensors", "*.pt", "*.pth"):
        for path in run.glob(pattern):
            path.unlink(missing_ok=True)


def _record(job: Job, cell: Cell, said: dict[str, Any], stored: StoredRun) -> RunRecord:
    workers = [statistics_of(each["statistics"].get(name) for name in FIELDS) for each in said["workers"]]
    validation = said.get("validation") or {}
    readings = readings_of(stored)
    history = on_grid(readings, max((each.time_s for each in readings), default=0.0))
    figures = of_cell(job, cell) | of_workers(workers, history)
    return RunRecord(
        **figures | {"versions": figures["versions"] | stored.versions},
        wall_s=float(said["wall_s"]),
        consensus_distance=finite(said.get("consensus_distance")),
        score=finite(validation.get("chosen")),
        better=validation.get("better", "higher"),
        identical=said.get("replicas_identical"),
        staleness_samples=tuple(
            one.statistics.staleness
            for one in stored.statistics
            if one.statistics.steps and math.isfinite(one.statistics.staleness)
        ),
    )


def readings_of(stored: StoredRun) -> list[Reading]:
    """Return the workers' statistics by seconds since the first of them began to train, on the workers' own clocks: the
    time when a reading arrived does not matter."""
    rows = [one for one in stored.statistics if one.statistics.wall_s > 0]
    began: dict[int, float] = {}
    for one in rows:
        at = one.time - one.statistics.wall_s
        began[one.rank] = min(began.get(one.rank, at), at)
    first = min(began.values(), default=0.0)
    made = [(one.rank, one.statistics) for one in rows]
    return [
        Reading(began[rank] - first + each.wall_s, rank, each.samples, each.bytes_sent, each.loss) for rank, each in made
    ]

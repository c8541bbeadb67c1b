"""A prediction held against a short real run on this machine.

Both are of the settled part of a run, from the same step on: the first updates are many times larger than later ones.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from taut.adviser.prediction import Pace, Prediction, pace_of
from taut.errors import RunFailed
from taut.supervisor.storage.store_reader import find_run

GRACE_S = 60.0  # for a run that was asked to end to drain and save its model


@dataclass(frozen=True)
class Verified:
    """``error``: how far the prediction is from what was measured, as a share of that."""

    prediction: Prediction
    samples_per_s: float
    bytes_per_step: float

    @property
    def error(self) -> float:
        predicted = self.prediction.figures.samples_per_s
        return predicted / self.samples_per_s - 1.0 if self.samples_per_s > 0.0 else float("inf")


def command(prediction: Prediction, workers: int, script: Path, args: Sequence[str]) -> list[str]:
    return ["taut", "run", "--workers", str(workers), *prediction.candidate.flags(), str(script), *args]


def verify(prediction: Prediction, workers: int, script: Path, args: Sequence[str], seconds: float) -> Verified:
    """Run the candidate for ``seconds`` (or to its end, if that comes first), then drain the run, as Ctrl-C would."""
    with tempfile.TemporaryDirectory(prefix="taut-advise-") as folder:
        words = command(prediction, workers, script, args)[2:]
        full = [sys.executable, "-m", "taut.cli.main", "run", "--json", "--runs-dir", folder, *words]
        process = subprocess.Popen(full, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            said, complaints = _briefly(process, seconds)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        pace = _pace(Path(folder), prediction.steps // 2) if process.returncode == 0 else None
    if process.returncode != 0:
        last = complaints.strip().splitlines()[-1:] or ["it said nothing"]
        raise RunFailed(f"the run of {prediction.candidate.name} failed (exit code {process.returncode}): {last[0]}")
    record = json.loads(said)
    steps, samples = (sum(worker["statistics"][what] for worker in record["workers"]) for what in ("steps", "samples"))
    if pace is None:
        return Verified(prediction, float(record["samples_per_s"]), record["bytes_sent"] / max(1, steps))
    return Verified(prediction, pace.steps_per_s * samples / max(1, steps), pace.bytes_per_step)


def _pace(runs: Path, first: int) -> Pace | None:
    """Return the pace of the only run in ``runs`` from step ``first`` on, or in its second half where it is not twice
    as long. Its last statistics are of the drain, and left out."""
    run = find_run(str(runs), "latest")
    last = {rank: statistics.steps for rank, statistics in run.latest().items()}
    points = ((each.rank, each.time, each.statistics.steps, each.statistics.bytes_sent) for each in run.statistics)
    begin = min(first, min(last.values(), default=0) // 2)
    return pace_of((point for point in points if point[2] < last[point[0]]), begin)


def _briefly(process: subprocess.Popen[str], seconds: float) -> tuple[str, str]:
    try:
        return process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        raise RunFailed(f"the run did not end within {GRACE_S:.0f} s of being asked to") from None

"""Reports of a run to Ray Train: metrics of the run while it goes, its checkpoints, and its model at the end.

Ray Train keeps the metrics that come with a checkpoint. All of them are also lines of ``result.json`` and
``progress.csv`` in the experiment's folder, as Ray's tools read them.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from taut.cli.output.console import notes
from taut.cli.output.display import Display
from taut.core.checkpoint_names import FOLDER, MANIFEST
from taut.supervisor.metrics import cluster_rate, finite, total
from taut.supervisor.view import ClusterView, Outcome

EVERY_S = 5.0  # between reports within a pass over the data
FIELDS = (
    *("training_iteration", "time_total_s", "epoch", "steps", "samples", "samples_per_s", "loss", "score"),
    *("workers", "joined", "departed", "bytes_sent", "consensus"),
)
Metrics = dict[str, Any]
Report = Callable[[Metrics, "Path | None"], None]  # with the folder of a checkpoint


def metrics_of(view: ClusterView) -> Metrics:
    """Return a run's figures as Ray Train takes them: one flat table."""
    statistics = [row.statistics for row in view.workers]
    together = total(statistics)
    return {
        "time_total_s": view.wall_s,
        "epoch": view.epoch,
        "steps": together.steps,
        "samples": together.samples,
        "samples_per_s": cluster_rate(statistics),
        "loss": finite(together.loss),
        "workers": view.here,
        "joined": len(view.workers),
        "departed": sum(row.state == "gone" for row in view.workers),
        "bytes_sent": together.bytes_sent,
        "consensus": finite(view.consensus),
    }


def to_ray_train(metrics: Metrics, checkpoint: Path | None) -> None:
    """Report to the Ray Train context that this process is in."""
    import ray.train

    given = None if checkpoint is None else ray.train.Checkpoint.from_directory(str(checkpoint))
    ray.train.report(metrics, checkpoint=given)


class Reports(Display):
    """A display that shows the run to Ray Train instead of a terminal.

    ``folder``: the run's; ``results``: the experiment's, None where it is not on this machine."""

    def __init__(self, folder: Path, results: Path | None, report: Report = to_ray_train) -> None:
        super().__init__(notes(), quiet=True)
        self._folder, self._results, self._report = folder, results, report
        self._epoch, self._due_s, self._count = 0, 0.0, 0
        self._reported: set[str] = set()
        self.metrics: Metrics = {}

    def update(self, view: ClusterView) -> None:
        """Report at the end of each pass, every few seconds, and whenever a checkpoint is complete."""
        checkpoint = self._new_checkpoint()
        if checkpoint is None and (not view.train_s or (view.epoch == self._epoch and time.monotonic() < self._due_s)):
            self.metrics = metrics_of(view)
            return
        self._epoch, self._due_s = view.epoch, time.monotonic() + EVERY_S
        self._give(metrics_of(view), checkpoint)

    def finish(self, outcome: Outcome) -> None:
        """Report the end of the run, with its model."""
        score = None if outcome.validation is None else finite(outcome.validation.chosen)
        steps = total(row.statistics for row in outcome.workers.values())
        last = {"steps": steps.steps, "samples": steps.samples, "loss": finite(steps.loss), "score": score}
        metrics = self.metrics | last | {"time_total_s": outcome.total_s}
        if outcome.model is None:
            self._give(metrics, None)
            return
        with tempfile.TemporaryDirectory(prefix="taut-model-") as folder:
            for path in {outcome.model, outcome.model.with_suffix(".pt"), *outcome.ensemble.values()}:
                if path.exists():
                    shutil.copy2(path, folder)
            self._give(metrics, Path(folder))

    def _give(self, metrics: Metrics, checkpoint: Path | None) -> None:
        self._count += 1
        self.metrics = metrics | {"training_iteration": self._count}
        if self._results is not None:
            with suppress(OSError):  # a full disk does not end a run
                write_line(self._results, self.metrics, first=self._count == 1)
        self._report(dict(self.metrics), checkpoint)

    def _new_checkpoint(self) -> Path | None:
        """Return the folder of a checkpoint that is complete and was not reported yet."""
        try:
            names = {entry.name for entry in os.scandir(self._folder / FOLDER)} - self._reported
        except FileNotFoundError:
            return None
        for name in sorted(names, key=lambda name: (len(name), name)):
            if (self._folder / FOLDER / name / MANIFEST).exists():
                self._reported.add(name)
                return self._folder / FOLDER / name
        return None


def write_line(folder: Path, metrics: Mapping[str, Any], *, first: bool) -> None:
    """Add a report to ``result.json`` and ``progress.csv``."""
    with open(folder / "result.json", "a", encoding="utf-8") as lines:
        lines.write(json.dumps(metrics) + "\n")
    with open(folder / "progress.csv", "a", encoding="utf-8", newline="") as table:
        writer = csv.DictWriter(table, FIELDS, extrasaction="ignore", restval="")
        if first:
            writer.writeheader()
        writer.writerow(metrics)

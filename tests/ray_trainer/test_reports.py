"""The reports of a run to Ray Train, and the arguments of ``taut.ray.Trainer``; without Ray itself."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from taut.core.checkpoint_names import FOLDER, MANIFEST
from taut.core.messages import Statistics
from taut.errors import Misuse
from taut.ray import Trainer
from taut.ray.reports import FIELDS, Metrics, Reports
from taut.supervisor.view import ClusterView, Outcome, WorkerRow


def view(epoch: int, *, steps: int, gone: int = 0, train_s: float = 1.0) -> ClusterView:
    rows = [
        WorkerRow(rank, "host", rank, "gone" if rank < gone else "training", Statistics(steps=steps, loss=0.5), 0.0, "")
        for rank in range(2)
    ]
    return ClusterView("run", "training", 0, tuple(rows), 0.0, epoch, 0, 100, (), 2.0, train_s)


def outcome(model: Path | None) -> Outcome:
    return Outcome("finished", 0, True, True, "digest", model, {row.rank: row for row in view(1, steps=9).workers})


def test_a_report_at_each_pass_and_one_with_the_model(tmp_path: Path) -> None:
    given: list[tuple[Metrics, list[str]]] = []

    def report(metrics: Metrics, checkpoint: Path | None) -> None:
        given.append((metrics, sorted(path.name for path in checkpoint.iterdir()) if checkpoint else []))

    reports = Reports(tmp_path / "run", tmp_path, report)
    reports.update(view(0, steps=0, train_s=0.0))  # it does not train yet
    assert given == []
    reports.update(view(0, steps=1))
    reports.update(view(0, steps=2))  # too soon after the last
    reports.update(view(1, steps=3, gone=1))
    parts = tmp_path / "run" / FOLDER / "1"
    parts.mkdir(parents=True)
    reports.update(view(1, steps=4))  # not complete
    (parts / MANIFEST).touch()
    reports.update(view(1, steps=5))
    reports.update(view(1, steps=6))
    (tmp_path / "run" / "model.safetensors").write_text("weights")
    reports.finish(outcome(tmp_path / "run" / "model.safetensors"))
    assert [(metrics["steps"], files) for metrics, files in given] == [
        (2, []),
        (6, []),
        (10, [MANIFEST]),
        (18, ["model.safetensors"]),
    ]
    assert [metrics["training_iteration"] for metrics, _ in given] == [1, 2, 3, 4]
    assert [(metrics["workers"], metrics["joined"], metrics["departed"]) for metrics, _ in given][1] == (1, 2, 1)
    lines = [json.loads(line) for line in (tmp_path / "result.json").read_text().splitlines()]
    assert lines == [metrics for metrics, _ in given]
    with open(tmp_path / "progress.csv", newline="") as table:
        rows = list(csv.DictReader(table))
    assert [row["steps"] for row in rows] == ["2", "6", "10", "18"]
    assert tuple(rows[0]) == FIELDS and set(given[-1][0]) == set(FIELDS)


def test_a_run_without_a_model_is_reported_without_a_checkpoint(tmp_path: Path) -> None:
    given: list[Path | None] = []
    reports = Reports(tmp_path, None, lambda metrics, checkpoint: given.append(checkpoint))
    reports.finish(outcome(None))
    assert given == [None] and list(tmp_path.iterdir()) == []


def two(first: int, second: int) -> None:
    pass


@pytest.mark.parametrize(
    ("train", "given", "word"),
    [
        ("nowhere.py", {}, "a file that exists"),
        (7, {}, "a script, or a function"),
        (two, {}, "with one, which is config"),
        (lambda: None, {"config": 1}, "with one, which is config"),
        (lambda: None, {"wrokers": 2}, "a setting that `taut run` has; did you mean 'workers'?"),
        (lambda: None, {"resources_per_worker": {"CPU": -1}}, "above 0"),
        (lambda: None, {"placement_strategy": "PAKC"}, "did you mean 'PACK'?"),
        (lambda: None, {"strategy": "snyc"}, "did you mean 'sync'?"),
    ],
)
def test_arguments_that_cannot_work_are_refused_at_once(train: object, given: dict[str, object], word: str) -> None:
    with pytest.raises(Misuse) as told:
        Trainer(train, **given)  # type: ignore[arg-type]
    assert word in str(told.value)

"""Real processes: the average, the best, all of them; and a validation function cannot cost the run its model."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from taut.core.handover import FOLDER, remove_folder
from taut.supervisor.storage import background_files
from taut.supervisor.storage.model_file import take_model
from taut.supervisor.storage.store_reader import load_run
from taut.supervisor.view import Outcome
from taut.testing.cluster import LocalCluster

JOB = Path(__file__).with_name("finish_job.py")


def finished(folder: Path, workers: int, *args: str, exits: bool = True, **settings: object) -> tuple[Outcome, str]:
    with LocalCluster(JOB, workers, folder / "run", args=list(args), settings=settings) as cluster:
        outcome = cluster.outcome()
        if exits:
            cluster.until_exits(workers)
        return outcome, cluster.logs()


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a run of one: its data, its model, its validation function."""
    monkeypatch.setattr(sys, "argv", [str(JOB)])
    spec = importlib.util.spec_from_file_location("finish_job", JOB)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def worth(job: ModuleType, file: Path) -> float:
    job.model.load_state_dict(load_file(file))
    job.model.eval()
    with torch.no_grad():
        return float(job.accuracy(job.model))


def test_replicas_that_differ_become_their_average(tmp_path: Path, job: ModuleType) -> None:
    """A stream that sends nothing, so the last average needs channels of its own."""
    outcome, _ = finished(tmp_path, 3, "--recalibrate", strategy="independent")
    assert outcome.exit_code == 0, outcome
    assert outcome.finish == "average"
    assert outcome.identical, "after the average all replicas are one"
    assert outcome.consensus > 0.01, "before it they were not"
    assert outcome.validation is not None
    assert sorted(outcome.validation.replicas) == [0, 1, 2]
    assert outcome.model is not None
    assert outcome.validation.chosen == pytest.approx(worth(job, outcome.model))
    mean = load_file(outcome.model)["1.running_mean"]
    layer = torch.nn.Linear(20, 32)
    weights = load_file(outcome.model)
    layer.load_state_dict({"weight": weights["0.weight"], "bias": weights["0.bias"]})
    torch.testing.assert_close(mean, layer(job.train[0]).mean(dim=0).detach(), rtol=1e-3, atol=1e-4)
    stored = load_run(tmp_path, "run").outcome
    assert stored is not None
    assert stored["validation"]["chosen"] == outcome.validation.chosen


@pytest.mark.parametrize("has_folder", [True, False])
def test_on_one_machine_the_model_is_a_file_and_is_sent_only_without_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_folder: bool
) -> None:
    taken: list[Path] = []

    def take(run_dir: Path, written: Path, *more: Any) -> Path:
        taken.append(written)
        return take_model(run_dir, written, *more)

    monkeypatch.setattr(background_files, "take_model", take)
    with LocalCluster(JOB, 1, tmp_path / "run", args=["--validate", "none"]) as cluster:
        if not has_folder:
            remove_folder(cluster.run_dir)
        outcome = cluster.outcome()
        cluster.until_exits(1)
    assert outcome.exit_code == 0, outcome
    assert taken == ([cluster.run_dir / FOLDER / "0.safetensors"] if has_folder else [])
    assert outcome.model is not None
    assert "0.weight" in load_file(outcome.model)
    assert not (cluster.run_dir / FOLDER).exists(), "nothing is left of it"


def test_a_method_is_averaged_too_and_without_who_dies_meanwhile(tmp_path: Path) -> None:
    """Worker 1 is killed while it validates: the others must not wait for its part of the average."""
    outcome, _ = finished(tmp_path, 3, "--validate", "die", strategy="dpsgd", topology="ring")
    assert outcome.exit_code == 0, outcome
    assert outcome.identical
    assert outcome.model is not None
    assert "SIGKILL" in outcome.workers[1].reason
    assert outcome.validation is not None
    assert sorted(outcome.validation.replicas) == [0, 2]


def test_the_best_replica_comes_out(tmp_path: Path, job: ModuleType) -> None:
    outcome, logs = finished(tmp_path, 2, strategy="independent", finish="best", explicit=["finish"])
    assert outcome.validation is not None
    assert outcome.model is not None
    replicas = outcome.validation.replicas
    assert worth(job, outcome.model) == pytest.approx(max(score for score in replicas.values() if score is not None))
    assert replicas[outcome.writer or 0] == outcome.validation.chosen
    for rank, score in replicas.items():
        assert f"score {score} rank {rank}" in logs


def test_all_replicas_are_kept_although_the_validation_function_raises(tmp_path: Path) -> None:
    outcome, logs = finished(tmp_path, 2, "--validate", "raise", strategy="independent", finish="ensemble")
    assert outcome.validation is None
    assert outcome.model is not None
    listed = json.loads(outcome.model.read_text())["models"]
    assert [(one["rank"], one["score"]) for one in listed] == [(0, None), (1, None)]
    one, other = (load_file(outcome.model.with_name(one["file"])) for one in listed)
    assert not torch.equal(one["0.weight"], other["0.weight"])
    assert not torch.equal(one["1.running_mean"], other["1.running_mean"]), "each has its own statistics"
    assert "accuracy" in logs
    assert "LookupError: no such data" in logs


def test_best_without_a_validation_function_is_refused_before_training(tmp_path: Path) -> None:
    outcome, logs = finished(tmp_path, 2, "--validate", "none", finish="best", explicit=["finish"])
    assert outcome.model is None
    assert "finish=best in a script without a validation function" in logs
    assert "--finish average" in logs
    assert all(row.statistics.steps == 0 for row in outcome.workers.values())

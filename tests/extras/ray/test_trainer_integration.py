"""``taut.ray.Trainer``: a function and a script, results where Ray Train has them, and runs that fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import JOB
from safetensors.torch import load_file

from taut.ray import Trainer
from taut.supervisor.storage.store_reader import list_runs


def train(config: dict[str, Any]) -> None:
    import torch

    import taut

    torch.manual_seed(0)
    x = torch.randn(600, 8)
    y = x @ torch.randn(8, 1)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    with taut.join(model, optimizer, validate=lambda model: (model(x) - y).square().mean(), better="lower") as worker:
        for inputs, targets in worker.batches((x, y), batch_size=10, epochs=4):
            worker.step((model(inputs) - targets).square().mean())
    print("trained by", worker.rank)


def test_a_function_and_its_results(driver: Any, tmp_path: Path) -> None:
    train.__module__ = "__main__"  # it is sent by value, as one of a user's program is
    where = driver.train.RunConfig(name="linear", storage_path=str(tmp_path))
    result = Trainer(train, config={"lr": 0.05}, workers=2, strategy="sync", seed=3, run_config=where).fit()
    assert result.path == str(tmp_path / "linear") and result.error is None
    assert result.metrics["samples"] == 2400 and result.metrics["joined"] == 2 and result.metrics["score"] < 1e-3
    with result.checkpoint.as_directory() as folder:
        assert load_file(Path(folder) / "model.safetensors")["weight"].shape == (1, 8)
    lines = [json.loads(line) for line in (tmp_path / "linear/result.json").read_text().splitlines()]
    assert [line["training_iteration"] for line in lines] == list(range(1, len(lines) + 1))
    assert lines[-1] == result.metrics
    assert len((tmp_path / "linear/progress.csv").read_text().splitlines()) == len(lines) + 1
    assert result.return_value["replicas_identical"] and result.return_value["settings"]["seed"] == 3
    [run] = list_runs(tmp_path / "linear/taut-runs")
    assert run.state == "finished"
    assert "trained by 0" in "".join(log.read_text() for log in run.path.glob("worker-*.log"))


def test_inside_ray_train_its_context_gets_the_reports(driver: Any, tmp_path: Path) -> None:
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    def loop() -> int:
        from taut.ray import Trainer

        return int(Trainer(JOB, args=["--epochs", "1"]).fit().metrics["samples"])

    loop.__module__ = "__main__"
    where = driver.train.RunConfig(name="inside", storage_path=str(tmp_path))
    here = driver.train.ScalingConfig(num_workers=1, resources_per_worker={"memory": 1000})
    result = DataParallelTrainer(loop, scaling_config=here, run_config=where).fit()
    assert result.return_value == result.metrics["samples"] == 2000
    with result.checkpoint.as_directory() as folder:
        assert (Path(folder) / "model.safetensors").exists()


def test_a_script_that_fails_is_told_with_its_error(driver: Any, tmp_path: Path) -> None:
    where = driver.train.RunConfig(storage_path=str(tmp_path))
    trainer = Trainer(JOB, args=["--raise-at", "3", "--samples", "20000"], workers=2, run_config=where)
    with pytest.raises(driver.train.TrainingFailedError, match="the script broke on purpose"):
        trainer.fit()

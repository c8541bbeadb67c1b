"""``taut.launch``: a function of a module is trained in processes; what it returns comes back, and so do its mistakes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from forked_zygotes import taut_command

import taut
from taut.cli.function_launch import LaunchFailed, launch
from taut.errors import Misuse

MODULE = """
import torch

import taut

x = torch.arange(256.0).reshape(64, 4) / 256

def train(rate, epochs=1):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    with taut.join(model, torch.optim.SGD(model.parameters(), lr=rate)) as worker:
        for inputs in worker.batches(x, batch_size=8, epochs=epochs):
            worker.step((model(inputs) - 1).square().mean())
    return {"rank": worker.rank, "weight": model.weight.detach()}

def fails():
    raise ValueError("no such column")
"""


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that is found in this folder alone."""
    (tmp_path / "mine_to_train.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine_to_train", raising=False)
    return "mine_to_train"


def test_a_function_is_trained_and_its_result_comes_back(trainer: str, capfd: pytest.CaptureFixture[str]) -> None:
    import mine_to_train  # type: ignore[import-not-found]

    done = launch(mine_to_train.train, workers=2, args=(0.1,), kwargs={"epochs": 2}, strategy="sync", name="owl")
    assert done.result["rank"] in (0, 1)
    assert done.run.name == "owl" and done.run.state == "finished"
    assert (done.model()["weight"] == done.result["weight"]).all()
    assert done.run.settings["strategy"] == "sync"
    assert "replicas: identical" in capfd.readouterr().out, "the run's output comes into the cell"


def test_what_goes_wrong_is_said(
    trainer: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import mine_to_train

    monkeypatch.setattr("taut.cli.function_launch.TAUT", taut_command())
    with pytest.raises(LaunchFailed, match="no such column"):
        launch(mine_to_train.fails, workers=1, quiet=True)
    with pytest.raises(Misuse, match="did you mean 'sync'"):
        launch(mine_to_train.train, strategy="synk", quiet=True)
    with pytest.raises(Misuse, match="a run on this machine"):
        launch(mine_to_train.train, hosts="a,b")
    assert taut.launch is launch


def test_a_function_that_no_module_has_needs_cloudpickle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taut.cli.function_launch.find_spec", lambda name: None)
    with pytest.raises(Misuse, match=r"cloudpickle; pip install 'taut\[notebook\]'"):
        launch(lambda: None)

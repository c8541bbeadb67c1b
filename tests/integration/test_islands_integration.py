"""Islands: real processes that hold one model together, in runs of several islands."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch
from forked_zygotes import script_command, taut_command

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DIES = """
import os, runpy, sys
import taut
from taut.worker.torch_worker import TorchWorker

step = TorchWorker.step

def stepped(self, loss, **given):
    value = step(self, loss, **given)
    if self.steps == 20 and self.rank == 1 and taut.parallel.island().rank == int(os.environ["VICTIM"]):
        os.kill(os.getpid(), 9)
    return value

TorchWorker.step = stepped
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*taut_command(), "run", *words],
        cwd=folder,
        env=os.environ | {"COLUMNS": "200"} | environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def model_of(folder: Path) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(folder / "model.pt")
    return found


def test_one_island_trains_as_one_process_does(tmp_path: Path) -> None:
    example = str(EXAMPLES / "columns_mlp.py")
    cut = run(
        tmp_path, "--workers", "2", "--island", "2", "--name", "cut", "--strategy", "sync", example, "--epochs", "1"
    )
    assert cut.returncode == 0, cut.stdout + cut.stderr
    whole = run(tmp_path, "--workers", "1", "--name", "whole", "--strategy", "sync", example, "--epochs", "1")
    assert whole.returncode == 0, whole.stdout + whole.stderr
    one, other = model_of(tmp_path / "taut-runs" / "cut"), model_of(tmp_path / "taut-runs" / "whole")
    assert one.keys() == other.keys() and len(one) == 8
    for name, tensor in other.items():
        torch.testing.assert_close(one[name], tensor, atol=2e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["async", "sync"])
def test_an_island_dies_as_one_worker_and_the_others_go_on(strategy: str, tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(DIES)
    example = str(EXAMPLES / "columns_mlp.py")
    words = [
        "--workers",
        "4",
        "--island",
        "2",
        "--name",
        "a",
        "--strategy",
        strategy,
        "dies.py",
        example,
        "--epochs",
        "2",
    ]
    done = run(tmp_path, *words, VICTIM="1")
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert "worker 1 is gone: killed by SIGKILL" in told and "without joining" not in told
    assert "replicas: identical" in told
    assert len(model_of(tmp_path / "taut-runs" / "a")) == 8


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["async", "sync", "dpsgd"])
@pytest.mark.parametrize("name", ["columns_mlp", "filters_alexnet", "two_paths", "pipelined_transformer"])
def test_examples_train_in_two_islands(name: str, strategy: str, tmp_path: Path) -> None:
    example = str(EXAMPLES / f"{name}.py")
    words = ["--workers", "4", "--island", "2", "--name", "a", "--strategy", strategy, example, "--epochs", "1"]
    done = run(tmp_path, *words)
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert "replicas: identical" in told
    logs = [(tmp_path / "taut-runs" / "a" / f"worker-{index}.log").read_text() for index in range(4)]
    last = {log.splitlines()[-1].split(" after ")[0] for log in logs}
    assert len(last) == 1, last  # all four computed the same with the whole model that came out
    alone = subprocess.run(
        [*script_command(example), "--epochs", "1"], check=False, capture_output=True, text=True, timeout=120
    )
    assert alone.returncode == 0, alone.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--workers", "3", "--island", "2"], "--workers 3 --island 2: expected a number of processes that 2 divides"),
        (["--workers", "2", "--island", "2", "--finish", "ensemble"], "--finish ensemble with --island"),
        (["--workers", "2", "--island", "2", "--checkpoint-every", "5s"], "--checkpoint-every with --island"),
    ],
)
def test_what_cannot_be_is_told_before_anything_starts(words: list[str], told: str, tmp_path: Path) -> None:
    done = run(tmp_path, *words, str(EXAMPLES / "columns_mlp.py"))
    assert done.returncode == 2 and told in done.stderr
    assert not list(tmp_path.glob("taut-runs/*"))

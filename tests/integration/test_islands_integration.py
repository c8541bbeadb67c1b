"""Islands: real processes that hold one model together, in runs of several islands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from forked_zygotes import script_command, taut_command

from taut.supervisor.checkpoints.folder import numbers

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DIES = """
import os, runpy, sys, threading
import taut
from taut.worker.torch_worker import TorchWorker

step = TorchWorker.step
pause = threading.Event()

def stepped(self, loss, **given):
    value = step(self, loss, **given)
    rank, part, steps = map(int, os.environ.get("VICTIM", "0,0,0").split(","))
    if steps and self.steps >= steps and self.rank == rank and taut.parallel.island().rank == part:
        if all(map(os.path.exists, filter(None, os.environ.get("AWAITED", "").split(":")))):
            os.kill(os.getpid(), 9)
        pause.wait(0.02)
    return value

TorchWorker.step = stepped
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return taut(folder, "run", *words, **environment)


def taut(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*taut_command(), *words],
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


TAUT = [str(Path(sys.executable).with_name("taut"))]
MLP = str(EXAMPLES / "columns_mlp.py")


def die(folder: Path, *words: str, victim: str = "0,0,1", checkpoint: int = 2) -> None:
    """Run islands of two, with checkpoints, in the folder "cut", until a process is killed, when this checkpoint is
    complete."""
    (folder / "dies.py").write_text(DIES)
    own = folder / "taut-runs" / "cut"
    awaited = [each / "checkpoints" / str(checkpoint) / "manifest.json" for each in (own, own / "part-1")]
    flags = ["--name", "cut", "--island", "2", "--checkpoint-every", "0.1s", *words]
    died = run(folder, *flags, "dies.py", MLP, "--epochs", "2", VICTIM=victim, AWAITED=":".join(map(str, awaited)))
    assert died.returncode == 1 and "killed by SIGKILL" in died.stderr, died.stdout + died.stderr


def trained_whole(folder: Path, *words: str) -> dict[str, torch.Tensor]:
    whole = run(folder, "--workers", "1", "--name", "whole", *words, MLP, "--epochs", "2")
    assert whole.returncode == 0, whole.stdout + whole.stderr
    return model_of(folder / "taut-runs" / "whole")


def check_close(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys() and len(one) == 8
    for name, tensor in other.items():
        torch.testing.assert_close(one[name], tensor, atol=2e-5, rtol=1e-4, msg=lambda text, name=name: f"{name}: {text}")


def test_one_island_killed_and_resumed_trains_as_one_process_does(tmp_path: Path) -> None:
    die(tmp_path, "--workers", "2", "--strategy", "sync")
    resumed = taut(tmp_path, "resume", "cut")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert "continuing cut from checkpoint " in resumed.stdout + resumed.stderr
    check_close(model_of(tmp_path / "taut-runs" / "cut"), trained_whole(tmp_path, "--strategy", "sync"))


@pytest.mark.long
@pytest.mark.parametrize("parts", [1, 4])
def test_a_checkpoint_of_two_parts_resumes_in_another_number(parts: int, tmp_path: Path) -> None:
    die(tmp_path, "--workers", "2", "--strategy", "sync")
    resumed = taut(tmp_path, "resume", "cut", "--island", str(parts), "--workers", str(parts))
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    check_close(model_of(tmp_path / "taut-runs" / "cut"), trained_whole(tmp_path, "--strategy", "sync"))


@pytest.mark.long
@pytest.mark.parametrize(("flags", "islands"), [((), 2), (("--island", "1", "--workers", "3"), 3)])
def test_islands_resume_from_what_all_parts_have(flags: tuple[str, ...], islands: int, tmp_path: Path) -> None:
    """The launcher is killed: nobody can tidy up. Then one part loses its newest checkpoint."""
    (tmp_path / "dies.py").write_text(DIES.replace("os.getpid()", "int(os.environ['LAUNCHER'])"))
    own = tmp_path / "taut-runs" / "cut"
    awaited = [each / "checkpoints" / "3" / "manifest.json" for each in (own, own / "part-1")]
    words = ["--name", "cut", "--workers", "4", "--island", "2", "--checkpoint-every", "0.1s"]
    shell = 'LAUNCHER=$$ exec "$@"'
    died = subprocess.run(
        ["sh", "-c", shell, "sh", *TAUT, "run", *words, "dies.py", MLP, "--epochs", "8"],
        cwd=tmp_path,
        env=os.environ | {"VICTIM": "0,0,1", "AWAITED": ":".join(map(str, awaited))},
        check=False,
        capture_output=True,
        timeout=120,
    )
    assert died.returncode == -9, died.stderr
    kept = [set(numbers(each / "checkpoints")) for each in (own, own / "part-1")]
    newest = max(kept[0] & kept[1])
    (own / "part-1" / "checkpoints" / str(newest) / "manifest.json").unlink(missing_ok=True)
    resumed = taut(tmp_path, "resume", "cut", *flags)
    told = resumed.stdout + resumed.stderr
    assert resumed.returncode == 0, told
    assert f"checkpoint {newest} is not used" in told and f"continuing cut from checkpoint {newest - 1}" in told
    assert "replicas: identical" in told and f"{islands} workers" in told
    assert len(model_of(own)) == 8


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["async", "sync"])
def test_an_island_dies_as_one_worker_and_the_others_go_on(strategy: str, tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(DIES)
    flags = ["--workers", "4", "--island", "2", "--name", "a", "--strategy", strategy]
    done = run(tmp_path, *flags, "dies.py", MLP, "--epochs", "2", VICTIM="1,1,20")
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
        (
            ["-n", "4", "--island", "2", "--devices", "cpu,0"],
            "--island 2 --devices cpu,0: expected processes on the proc",
        ),
        (
            ["--island", "2", "--hosts", "localhost:4"],
            "--island 2 --hosts localhost:4: expected processes that `taut run`",
        ),
        (["--workers", "4", "--island", "2", "--engine", "ray"], "--island 2 --engine ray: expected processes that"),
    ],
)
def test_what_cannot_be_is_told_before_anything_starts(words: list[str], told: str, tmp_path: Path) -> None:
    done = run(tmp_path, *words, str(EXAMPLES / "columns_mlp.py"))
    assert done.returncode == 2 and told in done.stderr
    assert not list(tmp_path.glob("taut-runs/*"))


def test_islands_of_several_machines_are_refused(tmp_path: Path) -> None:
    done = taut(tmp_path, "supervisor", TAUT_ISLAND="2")
    assert (
        done.returncode == 2 and "island 2 (TAUT_ISLAND): expected processes that `taut run` starts on one" in done.stderr
    ), done.stderr

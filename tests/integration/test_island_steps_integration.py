"""Clipping, scaling, validation and recalibration in islands: as in one process; and what an island refuses."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from forked_zygotes import taut_command

JOB = str(Path(__file__).with_name("island_job.py"))


def run(folder: Path, *words: str) -> str:
    """Run a script, and return what was told."""
    done = subprocess.run(
        [*taut_command(), "run", *words],
        cwd=folder,
        env=os.environ | {"COLUMNS": "200"},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def trained(folder: Path, processes: int, island: int, *words: str) -> list[dict[str, Any]]:
    """Run the job, and return what each process saw."""
    name = f"run-{processes}-{island}"
    told = run(folder, "--name", name, "--workers", str(processes), "--island", str(island), *words)
    assert processes // island < 2 or "replicas: identical" in told
    logs = [folder / "taut-runs" / name / f"worker-{index}.log" for index in range(processes)]
    return [json.loads(log.read_text().splitlines()[-1]) for log in logs]


def model_of(folder: Path, name: str) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = torch.load(folder / "taut-runs" / name / "model.pt")
    return found


SAME = ["columns", *(pytest.param(cut, marks=pytest.mark.long) for cut in ("split", "dtensor", "fsdp"))]


@pytest.mark.parametrize("cut", SAME)
def test_an_island_clips_scales_and_scores_as_one_process_does(cut: str, tmp_path: Path) -> None:
    """One process of the island overflows, and none of them makes the step."""
    words = ["--strategy", "sync", JOB, cut, "--overflow", "5" if cut == "columns" else "0"]
    (whole,), (one, other) = trained(tmp_path, 1, 1, *words), trained(tmp_path, 2, 2, *words)
    assert one == other and whole["read"] == 2000
    assert one["read"] == (1000 if cut == "split" else 2000), (
        "each process computes with a half of every batch, or all of it"
    )
    known = {"score": 0, "accuracy": 0, "read": 0}
    assert {**one, **known} == {**whole, **known}
    assert whole["scale"] == (512.0 if cut == "columns" else 1024.0) and whole["moved"] == 0
    assert abs(one["score"] - whole["score"]) < 0.01 > abs(one["accuracy"] - whole["accuracy"])
    mine, theirs = model_of(tmp_path, "run-2-2"), model_of(tmp_path, "run-1-1")
    assert mine.keys() == theirs.keys()
    for key, tensor in theirs.items():
        torch.testing.assert_close(mine[key], tensor, atol=2e-4, rtol=1e-3, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize(
    ("cut", "strategy", "more"),
    [
        ("fsdp", "async", []),
        pytest.param("split", "async", [], marks=pytest.mark.long),
        pytest.param("split", "sync", [], marks=pytest.mark.long),
        pytest.param("dtensor", "async", [], marks=pytest.mark.long),
        ("columns", "sync", ["--global-batch"]),
        pytest.param("columns", "async", ["--global-batch"], marks=pytest.mark.long),
        pytest.param("columns", "averaging:every=4", ["--global-batch"], marks=pytest.mark.long),
        pytest.param("fsdp", "sync", [], marks=pytest.mark.long),
        pytest.param("columns", "async", [], marks=pytest.mark.long),
        pytest.param("columns", "sync", [], marks=pytest.mark.long),
        pytest.param("columns", "dpsgd", [], marks=pytest.mark.long),
    ],
)
def test_two_islands_clip_scale_and_score(cut: str, strategy: str, more: list[str], tmp_path: Path) -> None:
    """``fsdp``: ``taut.join`` sees by itself that the model's parameters are cut (DTensors)."""
    found = trained(tmp_path, 4, 2, "--strategy", strategy, JOB, cut, "--overflow", "5", *more)
    for one, other in (found[:2], found[2:]):
        alike = ("score", "scale", "steps", "samples")
        assert [one[key] for key in alike] == [other[key] for key in alike]
        assert one["score"] > 0.8
    assert found[0]["samples"] + found[2]["samples"] == 2 * 1000
    assert len({each["accuracy"] for each in found}) == 1, "all four compute with the whole model that came out"


@pytest.mark.long
def test_the_best_island_s_parts_make_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replicas that differ: each part's run chooses by the scores of whole islands, so all choose the same one."""
    words = ["--strategy", "independent", "--finish", "best", JOB, "columns"]
    told = run(tmp_path, "--name", "run", "--workers", "4", "--island", "2", *words)
    logs = [tmp_path / "taut-runs" / "run" / f"worker-{index}.log" for index in range(4)]
    found = [json.loads(log.read_text().splitlines()[-1]) for log in logs]
    score = float(told.partition("validation score ")[2].split()[0])
    best = max(found, key=lambda each: each["score"])
    assert score == pytest.approx(best["accuracy"], abs=1e-3), (told, found)
    (tmp_path / "check.py").write_text(Path(JOB).read_text().partition("moved, overflowed")[0])
    monkeypatch.setattr(sys, "argv", ["check.py", "columns"])
    names = runpy.run_path(str(tmp_path / "check.py"))
    names["model"].load_state_dict(model_of(tmp_path, "run"))
    names["model"].eval()
    assert names["accuracy"](names["model"]) == pytest.approx(score, abs=1e-3)


REFUSED = """
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
import taut

def refused(call):
    try:
        call()
    except taut.errors.Misuse as error:
        print(error)
    else:
        print("accepted")

island = taut.parallel.island()

def join(model):
    return taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1))

def sharded(*layers):
    return fully_shard(nn.Sequential(*layers), mesh=island.mesh)

refused(lambda: join(nn.Linear(4, 2)))
refused(lambda: join(DistributedDataParallel(nn.Linear(4, 2))))
refused(lambda: join(sharded(nn.Linear(4, 3))))
refused(lambda: join(sharded(nn.Linear(4, 2)).bfloat16()))
torch.manual_seed(0)
with join(sharded(nn.Linear(4, 2))) as worker:
    worker.print("main")
    for inputs in worker.batches(torch.zeros(8, 4), batch_size=4):
        worker.step(worker.model(inputs).sum())
"""
WORDS = [
    "an island of 2 with a process whose parameters process 0 has, too",
    "DistributedDataParallel in an island of 2, each process with the whole model and the same batches",
    "'0.weight' of shape (3, 4) under FSDP in an island of 2: expected a first dimension that 2 divides",
    "'0.weight' of type torch.bfloat16 that is cut into parts: expected float32 weights",
]


def test_an_island_names_what_it_does_not_do(tmp_path: Path) -> None:
    (tmp_path / "refused.py").write_text(REFUSED)
    run(tmp_path, "--name", "run", "--workers", "2", "--island", "2", "refused.py")
    for index in range(2):
        told = (tmp_path / "taut-runs" / "run" / f"worker-{index}.log").read_text()
        assert [words for words in WORDS if words not in told] == [], told
        assert ("accepted" in told, "main" in told.splitlines()) == (False, index == 0), told


def test_batches_are_split_only_where_gradients_are_averaged(tmp_path: Path) -> None:
    """The law of ``columns`` holds for the same batch at all processes alone."""
    head, _, _ = REFUSED.partition("refused(lambda")
    cut = "nn.Sequential(taut.parallel.columns(nn.Linear(4, 4)), nn.Linear(4, 2))"
    asked = "refused(lambda: worker.batches(torch.zeros(8, 4), batch_size=4, split=True))"
    (tmp_path / "split.py").write_text(f"{head}with join({cut}) as worker:\n    {asked}\n")
    told = run(tmp_path, "--workers", "2", "--island", "2", "split.py")
    assert "split=True) in an island: expected a model that FSDP cuts as a whole" in told and "accepted" not in told

"""Real comparisons through the command line: two strategies by two workers, runs that fail, and misuse."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import typer
from forked_zygotes import taut_command
from typer.testing import CliRunner

from taut.cli.commands.compare import compare
from taut.cli.options import PASS_ON
from taut.comparison.report.table import Table
from taut.comparison.runs import real_run
from taut.comparison.runs.job import Job
from taut.comparison.runs.matrix import expand
from taut.comparison.runs.real_run import run_really
from taut.errors import Misuse

TRAIN = """
    import sys
    import torch
    import taut

    torch.set_num_threads(1)
    torch.manual_seed(int(sys.argv[1]))
    model = torch.nn.Linear(8, 2)
    x = torch.randn(128, 8)
    y = (x.sum(dim=1) > 0).long()
    accuracy = lambda model: (model(x).argmax(1) == y).float().mean().item()
    with taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1), validate=accuracy) as worker:
        for inputs, targets in worker.batches((x, y), batch_size=8, epochs=4):
            worker.step(torch.nn.functional.cross_entropy(model(inputs), targets))
"""
app = typer.Typer(pretty_exceptions_enable=False)
app.command("compare", context_settings=PASS_ON)(compare)


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TRAIN))
    return script


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands are forks: their imports are not paid for."""
    finished = real_run._finished

    def fork(command: list[str], limit_s: float | None) -> tuple[int, str, str]:
        assert command[:3] == [sys.executable, "-m", "taut.cli.main"]
        return finished([*taut_command(), *command[3:]], limit_s)

    monkeypatch.setattr(real_run, "_finished", fork)


def invoke(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(done.exception, Misuse):
        raise done.exception
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


@pytest.mark.usefixtures("forked")
def test_real_runs_of_two_strategies(tmp_path: Path, train: Path) -> None:
    flags = ["--strategies", "sync,async", "-n", 2, "--seeds", 1, "--target", "0.6", "--json", "--out", "out"]
    code, told = invoke(*flags, train, "{seed}")
    assert code == 0, told
    said = json.loads(told)
    assert [(row["strategy"], row["codec"], row["state"]) for row in said["runs"]] == [
        ("sync", "dense", "finished"),
        ("async", "tether", "finished"),
    ]
    for row in said["runs"]:
        assert row["samples"] == 4 * 128
        assert row["score"] > 0.6
        assert row["samples_per_s"] > 0 and row["bytes_sent"] > 0 and row["loss"] > 0
        shares = [value for name, value in row.items() if name.endswith("_share")]
        assert sum(shares) == pytest.approx(1.0, abs=0.02)
        assert row["time_to_target_s"] == row["wall_s"] and row["target_known_at_end_only"]
        assert row["command"].endswith(f"{train} 0")
    out = tmp_path / "out"
    assert Table.from_csv((out / "runs.csv").read_text())[0]["strategy"] == "sync"
    assert (out / "report.html").exists() and (out / "time-split.png").exists()
    assert not list(out.rglob("*.safetensors"))  # figures stay, models need asking for

    code, told = invoke(*flags, train, "{seed}")  # nothing is left to do: no process is started
    assert code == 0
    assert json.loads(told)["runs"] == said["runs"]


def test_a_run_that_fails_is_a_record(tmp_path: Path, train: Path) -> None:
    cell = expand(["async"], workers=[1]).cells[0]
    found = run_really(Job(train, flags=("--threads", "0")), cell, tmp_path)
    assert found.state == "failed"
    assert found.error.startswith("--threads = ")
    assert found.command.startswith("taut run --workers 1 --strategy async")


def test_a_run_that_takes_too_long_is_stopped(tmp_path: Path, train: Path) -> None:
    found = run_really(Job(train, time_limit_s=0.01), expand(["async"], workers=[1]).cells[0], tmp_path)
    assert found.state == "failed"
    assert found.error == "it was stopped after 0.01 s"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--strategies", "asinc"], "did you mean 'async'"),
        (["--strategies", "sync", "--codecs", "tether"], "go together"),
        (["--strategies", "sync", "--seeds", 0], "at least 1"),
        (["--strategies", "sync", "-n", "2,x"], "as in 4,8,16"),
        (["--strategies", "sync", "--link", "1gbit"], "add --simulate"),
        (["--strategies", "sync", "--simulate", "--threads", "2"], "add --real"),
        (["--strategies", "sync", "--target", "good"], "as in --target"),
    ],
)
def test_misuse_is_told_before_anything_is_run(train: Path, flags: list[object], said: str) -> None:
    with pytest.raises(Misuse, match=said):
        invoke(*flags, train)
    assert not Path("taut-compare").exists()


def test_the_command_is_light() -> None:
    """Torch and matplotlib are not imported before something is run or drawn."""
    code = "import sys, taut.cli.commands.compare; print(*{'torch', 'numba', 'matplotlib', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []

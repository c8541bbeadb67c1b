"""What a user can get wrong before anything is started: one clear line, exit code 2, nothing left behind."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from taut.cli.main import main


class Said(NamedTuple):
    """What a command said and how it ended."""

    code: int
    out: str
    err: str


Command = Callable[..., Said]


@pytest.fixture
def taut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Call the command in an empty folder, without the caller's settings."""
    for name in [name for name in os.environ if name.startswith("TAUT_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Said:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        return Said(int(ended.value.code or 0), captured.out, captured.err)

    return call


def script(folder: Path) -> str:
    (folder / "train.py").write_text("raise SystemExit(0)\n")
    return "train.py"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--strategy", "asinc"], ["--strategy = 'asinc'", "expected one of", "did you mean 'async'?"]),
        (["--codec", "tehter"], ["tehter", "did you mean 'tether'?"]),
        (["--codec", "threshold:tau=0.3"], ["tau=0.3", "power of two"]),
        (["--codec", "threshold:tau=0"], ["tau=0", "positive"]),
        (["--workers", "0"], ["--workers = 0", "from 1"]),
        (["--topology", "rign"], ["--topology = 'rign'", "did you mean 'ring'?"]),
        (["--topology", "file:absent.txt"], ["absent.txt", "No such file"]),
        (["--topology", "torus:3x5", "--workers", "16"], ["16 workers", "3 x 5 = 15", "4 x 4"]),
        (["--topology", "edges:0-1,2-3", "--workers", "4"], ["in 2 parts", "expected a connected one", "0-2"]),
        (
            ["--strategy", "independent", "--topology", "ring", "--workers", "4"],
            ["independent", "'ring'", "expected complete", "async"],
        ),
        (["--strategy", "ssp:-1"], ["--strategy = 'ssp:-1'", "slack"]),
        (["--strategy", "adpsgd", "--topology", "exponential", "-n", "4"], ["exponential", "directed=no", "sgp"]),
        (["--strategy", "dpsgd", "--codec", "tether"], ["'tether'", "'dpsgd'", "expected dense", "async"]),
        (["--finish", "mean"], ["--finish = 'mean'", "average, best, any, ensemble"]),
        (["--finish", "ensembel"], ["did you mean 'ensemble'?"]),
        (["--start", "spwan"], ["--start = 'spwan'", "did you mean 'spawn'?"]),
        (["--config", "absent.toml"], ["absent.toml", "a file that exists"]),
        (["--name", "a/b"], ["--name = 'a/b'"]),
        (["--bind", "not an address"], ["not an address"]),
    ],
)
def test_a_wrong_setting_is_one_line_and_exit_code_2(
    taut: Command, tmp_path: Path, flags: list[str], words: list[str]
) -> None:
    said = taut("run", *flags, script(tmp_path))
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert said.err.startswith("error: ")
    assert "Traceback" not in said.err
    for word in words:
        assert word in said.err
    assert not list((tmp_path / "taut-runs").glob("*"))


def test_debug_shows_the_traceback(taut: Command, tmp_path: Path) -> None:
    said = taut("--debug", "run", "--workers", "0", script(tmp_path))
    assert said.code == 2
    assert "Traceback" in said.err


@pytest.mark.parametrize("command", [["run"], ["worker", "--join", "127.0.0.1:7000"]])
def test_a_script_that_does_not_exist(taut: Command, tmp_path: Path, command: list[str]) -> None:
    script(tmp_path)
    said = taut(*command, "trian.py")
    assert said.code == 2
    assert "did you mean 'train.py'?" in said.err
    assert taut(*command, str(tmp_path)).code == 2


def test_a_busy_port(taut: Command, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for command in (
            ["run", "--port", port, script(tmp_path)],
            ["supervisor", "--bind", "127.0.0.1", "--port", port],
        ):
            said = taut(*command)
            assert said.code == 2
            assert port in said.err
            assert "a free port" in said.err
    assert not list((tmp_path / "taut-runs").glob("*"))


def test_a_folder_of_runs_that_cannot_be_made(taut: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for folder in ("file", "file/deeper", "/proc/taut-runs"):
        said = taut("run", "--runs-dir", folder, script(tmp_path))
        assert said.code == 2
        assert f"--runs-dir {folder}" in said.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_of_runs_that_is_read_only(taut: Command, tmp_path: Path) -> None:
    (tmp_path / "sealed").mkdir(mode=0o500)
    said = taut("run", "--runs-dir", "sealed", script(tmp_path))
    assert said.code == 2
    assert "may write to" in said.err


def test_a_name_that_is_taken(taut: Command, tmp_path: Path) -> None:
    (tmp_path / "taut-runs" / "mine").mkdir(parents=True)
    said = taut("run", "--name", "mine", script(tmp_path))
    assert said.code == 2
    assert "--name mine" in said.err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "no token"),
        (["--token-file", "absent"], "token file absent"),
        (["--token-file", "train.py"], "'taut1-'"),
    ],
)
def test_a_worker_without_a_good_token(taut: Command, tmp_path: Path, flags: list[str], words: str) -> None:
    said = taut("worker", "--join", "127.0.0.1:7000", *flags, script(tmp_path))
    assert said.code == 2
    assert words in said.err


@pytest.mark.parametrize("address", ["127.0.0.1", "host:port", "a b:1"])
def test_a_worker_without_a_good_address(taut: Command, tmp_path: Path, address: str) -> None:
    said = taut("worker", "--join", address, script(tmp_path))
    assert said.code == 2
    assert address in said.err


def test_no_runs_yet(taut: Command) -> None:
    assert taut("runs").code == 0
    assert json.loads(taut("runs", "--json").out)["runs"] == []
    said = taut("show", "latest")
    assert said.code == 2
    assert "there is none" in said.err


def test_the_demo_wants_at_least_one_epoch(taut: Command) -> None:
    said = taut("demo", "--epochs", "0")
    assert said.code == 2
    assert "--epochs = 0" in said.err


def test_version_and_help(taut: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    import taut as package

    assert taut("--version").out == f"taut {package.__version__}\n"
    monkeypatch.setenv("COLUMNS", "80")
    for command in ("run", "demo", "supervisor", "worker", "runs", "show"):
        said = taut(command, "--help")
        assert said.code == 0
        assert "…" not in said.out  # nothing is cut off
        assert max(len(line) for line in said.out.splitlines()) <= 80


def test_the_command_line_starts_without_torch_and_numba(tmp_path: Path) -> None:
    check = (
        "import sys, taut.cli.main, taut.supervisor.service, taut.codecs; "
        "taut.codecs.parse('tether'); print([m for m in ('torch', 'numba', 'sklearn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

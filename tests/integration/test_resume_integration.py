"""``taut resume`` with real processes and a real kill -9; and all that it refuses, with one clear line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from forked_zygotes import taut_command

from taut.cli.main import main
from taut.core.checkpoint_names import FOLDER, MANIFEST
from taut.supervisor.checkpoints.folder import numbers
from taut.supervisor.service import Supervisor
from taut.supervisor.standby import Standby
from taut.supervisor.storage.store_reader import load_run

JOB = Path(__file__).with_name("resume_job.py")
PATIENCE_S = 60.0
PAUSE = threading.Event()  # never set: between two looks at what another process has done

Start = Callable[..., subprocess.Popen[bytes]]


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        PAUSE.wait(0.01)


@pytest.fixture
def taut(tmp_path: Path) -> Iterator[Start]:
    """Start the command in a session of its own, so that all of it can be killed at once."""
    with ExitStack() as stack:

        def start(log: str, *words: str, folder: str = ".") -> subprocess.Popen[bytes]:
            out = stack.enter_context((tmp_path / log).open("wb"))
            process = subprocess.Popen(
                [*taut_command(), *words],
                cwd=tmp_path / folder,
                stdout=out,
                stderr=out,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

            def stop() -> None:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

            stack.callback(stop)
            return process

        yield start


def test_killed_and_resumed_it_ends_with_the_same_bits(tmp_path: Path, taut: Start) -> None:
    job = [str(JOB), "--loader", "--epochs", "4"]
    whole = taut("whole.log", "run", "--threads", "1", "--name", "whole", *job, "--digest", "whole.txt")
    flags = ["--threads", "1", "--name", "cut", "--checkpoint-every", "0.1s", "--keep-checkpoints", "2"]
    cut = taut("cut.log", "run", *flags, *job, "--digest", "cut.txt", "--pause", "0.01")
    folder = tmp_path / "taut-runs" / "cut" / FOLDER
    until(lambda: (folder / "3" / MANIFEST).exists() or cut.poll() is not None, "a checkpoint")
    cut.send_signal(signal.SIGUSR1)  # SIGKILL for a forked command
    cut.wait()
    kept = [number for number in numbers(folder) if (folder / str(number) / MANIFEST).exists()]
    assert len(kept) in (2, 3)  # killed before or after the oldest of three was removed
    torn = folder / "99"  # as a kill in the middle of a write leaves it
    torn.mkdir()
    (torn / ".worker-0.safetensors.77.part").write_bytes(b"half")
    (tmp_path / "hurry").touch()
    (tmp_path / "elsewhere").mkdir()  # the script finds its files all the same
    resumed = taut("resumed.log", "resume", "cut", "--runs-dir", "../taut-runs", "--json", folder="elsewhere")
    assert resumed.wait(PATIENCE_S) == 0, (tmp_path / "resumed.log").read_text()
    assert whole.wait(PATIENCE_S) == 0, (tmp_path / "whole.log").read_text()
    assert (tmp_path / "cut.txt").read_text() == (tmp_path / "whole.txt").read_text()
    said = (tmp_path / "resumed.log").read_text()
    assert "warning: checkpoint 99 is not used" in said and "never completed" in said
    assert json.loads(said[said.index("{") :])["exit_code"] == 0
    record = load_run(tmp_path / "taut-runs", "cut")
    assert any(event.kind == "resumed" for event in record.events)
    assert sum(each.samples for each in record.latest().values()) == 4 * 1500


def test_a_damaged_store_does_not_keep_good_checkpoints_from_being_used(tmp_path: Path, taut: Start) -> None:
    flags = ["--threads", "1", "--name", "cut", "--checkpoint-every", "0.1s"]
    cut = taut("cut.log", "run", *flags, str(JOB), "--loader", "--epochs", "3", "--digest", "cut.txt", "--pause", "0.01")
    folder = tmp_path / "taut-runs" / "cut"
    until(lambda: (folder / FOLDER / "1" / MANIFEST).exists() or cut.poll() is not None, "a checkpoint")
    cut.send_signal(signal.SIGUSR1)  # SIGKILL for a forked command
    cut.wait()
    for path in folder.glob("run.sqlite*"):
        path.write_bytes(b"rubbish " * 1000)
    (tmp_path / "hurry").touch()
    resumed = taut("resumed.log", "resume", "cut")
    said = tmp_path / "resumed.log"
    assert resumed.wait(PATIENCE_S) == 0, said.read_text()
    assert "run.sqlite is damaged: the checkpoint has all that is needed" in said.read_text()
    assert (folder / "model.safetensors").exists() and (folder / "run.sqlite.damaged").exists()
    assert load_run(tmp_path / "taut-runs", "cut").summary.state == "finished"


# ----------------------------------------------------------------------------------------------------- refusals


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Call the command, which is to end with exit code 2: what it says."""
    for name in [name for name in os.environ if name.startswith("TAUT_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        text = capsys.readouterr().err
        (line,) = [line for line in text.splitlines() if not line.startswith("looking whether")]
        assert ended.value.code == 2 and line.startswith("error: "), text
        return line

    return call


def a_run(name: str = "first") -> Supervisor:
    settings = {"strategy": "async", "workers": 1, "seed": 0}
    return Supervisor(settings, Path("taut-runs") / name, run=name, workers=1, seed=0)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--checkpoint-every", "5 lightyears"], ["'5 lightyears'", "a time, steps or epochs", "try 5m"]),
        (["--checkpoint-every", "0s"], ["'0s'", "more than nothing", "leave it out"]),
        (["--checkpoint-every", "often"], ["'often'", "a number and a unit", "200steps"]),
        (["--checkpoint-every", "1.5steps"], ["'1.5steps'", "whole number"]),
        (["--checkpoint-every", "2epcohs"], ["did you mean 'epochs'?"]),
        (["--keep-checkpoints", "0"], ["--keep-checkpoints = 0", "from 1"]),
    ],
)
def test_how_often(flags: list[str], words: list[str], said: Callable[..., str]) -> None:
    Path("train.py").write_text("raise SystemExit(0)\n")
    text = said("run", *flags, "train.py")
    assert all(word in text for word in words), text
    assert not Path("taut-runs").exists()


def test_a_run_that_is_not_known(said: Callable[..., str]) -> None:
    a_run().stop()
    assert "did you mean 'first'?" in said("resume", "frist")


def test_a_run_that_still_goes(said: Callable[..., str]) -> None:
    supervisor = a_run()
    token = supervisor.token_file.read_text()
    try:
        text = said("resume", "first")
        assert "a run that no other process supervises" in text
        assert f"process {os.getpid()} on {socket.gethostname()}" in text
        assert supervisor.token_file.read_text() == token, "the run's workers could not come back any more"
    finally:
        supervisor.stop()


def test_a_process_number_that_was_given_again_is_no_supervisor(
    said: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a reboot any process may have the number of the supervisor that is gone. The lock tells; and of another
    machine, which may be gone for good, whether anything is still written."""
    a_run().stop()
    store = Path("taut-runs") / "first" / "run.sqlite"
    with sqlite3.connect(store) as database:
        database.execute("update run set outcome = null, pid = ?", (os.getpid(),))
    database.close()
    assert "a run with checkpoints" in said("resume", "first")
    with sqlite3.connect(store) as database:
        database.execute("update run set host = 'elsewhere'")
    database.close()
    monkeypatch.setattr(Standby, "beats", lambda self: True)
    assert "which is on elsewhere" in said("resume", "first")
    monkeypatch.setattr(Standby, "beats", lambda self: False)
    assert "a run with checkpoints" in said("resume", "first")


def test_a_damaged_store_of_a_run_that_has_nothing_else_or_is_finished(said: Callable[..., str]) -> None:
    a_run().stop()
    folder = Path("taut-runs") / "first"
    for path in folder.glob("run.sqlite*"):
        path.write_bytes(b"rubbish " * 1000)
    assert "run.sqlite is damaged" in said("resume", "first")
    (folder / FOLDER).mkdir()
    assert "a run with checkpoints" in said("resume", "first")
    (folder / "model.safetensors").touch()
    assert "its model is" in said("resume", "first")
    assert not (folder / "run.sqlite.damaged").exists()


def test_a_run_without_checkpoints(said: Callable[..., str]) -> None:
    a_run().stop()
    assert "a run with checkpoints" in said("resume", "first")
    torn = Path("taut-runs") / "first" / FOLDER / "1"
    torn.mkdir(parents=True)
    assert "there is none: checkpoint 1 is not used" in said("resume", "first")
    shutil.rmtree(torn)

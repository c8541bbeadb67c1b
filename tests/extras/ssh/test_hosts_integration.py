"""Runs on hosts that a real sshd is on: they train, they lose hosts and go on, and they leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import JOB
from lab import Lab, until

PYTHON = ["--ssh-python", sys.executable]


def test_three_workers_on_two_hosts(lab: Lab, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    flags = ["run", "--hosts", "b,c:2", *PYTHON, "--name", "three", "--logs", "all", JOB, "--gate", str(gate)]
    with lab.run(tmp_path, *flags) as run:
        run.until(r"^b: worker 0, Python 3\.")
        run.until(r"^c: workers 1 to 2, Python 3\.")
        run.until("start: training starts with 3 of 3 workers")
        token = (tmp_path / "taut-runs/three/token").read_text().strip()
        shown = subprocess.run(["ps", "auxeww"], capture_output=True, text=True, check=True).stdout
        assert len(token) > 20 and token not in shown and "OMP_NUM_THREADS=" in shown, "ps shows environments, too"
        for part in token.replace("-", " ").replace(".", " ").replace(":", " ").split():
            assert len(part) < 16 or part not in shown
        assert len(lab.processes("c")) > len(lab.processes("b")) > 0
        gate.touch()
        assert run.end() == 0, run.text
    for index in range(3):
        run.until(rf"^\[{index}\] accuracy")
        assert "accuracy" in (tmp_path / f"taut-runs/three/worker-{index}.log").read_text()
    assert (tmp_path / "taut-runs/three/model.safetensors").exists()
    assert token not in "".join(path.read_text() for path in (tmp_path / "taut-runs/three").glob("*.log"))
    assert not lab.files()
    until(lab.clean)


@pytest.mark.parametrize("how", ["killed", "cut"])
def test_a_host_that_is_lost_leaves_and_the_run_goes_on(lab: Lab, tmp_path: Path, how: str) -> None:
    gate = tmp_path / "gate"
    flags = ["run", "--hosts", "b,c", *PYTHON, "--name", "lost", JOB, "--gate", str(gate)]
    with lab.run(tmp_path, *flags) as run:
        run.until("start: training starts with 2 of 2 workers")
        if how == "killed":
            lab.kill("c")
        else:
            lab.cable("c", "down")
        run.until(r"(lost|left|silent|gone|exited|departed)")
        log = tmp_path / "taut-runs/lost/ssh.log"
        until(lambda: "c: lost" in log.read_text(), run.text)
        if how == "cut":  # its agent hears nothing, and ends
            until(lambda: not lab.processes("c") and not lab.files("c"))
        gate.touch()
        assert run.end() == 0, run.text
    assert (tmp_path / "taut-runs/lost/model.safetensors").exists()
    assert not lab.files("b")
    until(lambda: not lab.processes("b"))


def test_ctrl_c_drains_and_leaves_nothing(lab: Lab, tmp_path: Path) -> None:
    flags = ["run", "--hosts", "b,c", *PYTHON, "--name", "stopped", JOB, "--gate", str(tmp_path / "never")]
    with lab.run(tmp_path, *flags) as run:
        run.until(r"training +epoch")
        run.process.send_signal(signal.SIGINT)
        assert run.end() == 0, run.text
    assert (tmp_path / "taut-runs/stopped/model.safetensors").exists()
    assert not lab.files()
    until(lab.clean)


def test_a_launcher_that_is_killed_leaves_nothing_on_the_hosts(lab: Lab, tmp_path: Path) -> None:
    flags = ["run", "--hosts", "b,c", *PYTHON, "--name", "killed", JOB, "--gate", str(tmp_path / "never")]
    with lab.run(tmp_path, *flags) as run:
        run.until("start: training starts")
        os.kill(run.process.pid, signal.SIGKILL)
        run.end()
    until(lab.clean)


def test_a_script_takes_its_modules_along_and_may_be_in_a_directory(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(Path(JOB).read_text())
    (tmp_path / "train.py").write_text("import sys\nimport net\nprint('at', __file__)\n")
    there = lab.folder / "job"
    there.mkdir()
    for name in ("train.py", "net.py"):
        (there / name).write_bytes((tmp_path / name).read_bytes())
    (tmp_path / "hosts.toml").write_text(
        f'[defaults]\npython = "{sys.executable}"\nuser = "root"\nport = 22\n'
        f'[hosts.b]\n[hosts.second]\naddress = "10.79.0.3"\ndirectory = "{there}"\ndevices = "cpu"\n'
    )
    data = tmp_path / "data.npz"
    data.write_bytes(b"data")
    flags = ["run", "--hosts", "hosts.toml", "--same-file", str(data), "--name", "both", "train.py", "--epochs", "2"]
    with lab.run(tmp_path, *flags) as run:
        assert run.end() == 0, run.text
    run.until("^second: worker 1, ")
    logs = [(tmp_path / f"taut-runs/both/worker-{index}.log").read_text() for index in range(2)]
    assert f"at {lab.tmp('b')}/taut-ssh-" in logs[0]
    assert f"at {there}/train.py" in logs[1]
    assert not lab.files()
    until(lab.clean)


def test_a_run_whose_launcher_was_killed_is_resumed_on_the_hosts(lab: Lab, tmp_path: Path) -> None:
    gate, hosts = tmp_path / "gate", ["--hosts", "b,c", *PYTHON]
    flags = ["run", *hosts, "--checkpoint-every", "20steps", "--name", "again", JOB, "--gate", str(gate)]
    with lab.run(tmp_path, *flags) as run:
        run.until("start: training starts")
        until(lambda: list((tmp_path / "taut-runs/again/checkpoints").glob("*/manifest*")), run.text)
        os.kill(run.process.pid, signal.SIGKILL)
        run.end()
    gate.touch()
    with lab.run(tmp_path, "resume", "again") as run:
        run.until("^error: --engine ssh without --hosts: expected the hosts to train on")
        assert run.end() == 2
    with lab.run(tmp_path, "resume", "again", *hosts) as run:
        assert run.end() == 0, run.text
    assert (tmp_path / "taut-runs/again/model.safetensors").exists()
    until(lab.clean)

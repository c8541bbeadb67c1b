"""Hosts that cannot train: a line for each, before anything is made, and nothing is left there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from commands import JOB
from lab import Lab, until

PYTHON = f"--ssh-python {sys.executable}"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (f"--hosts b,nobody {PYTHON}", r"^  nobody: ssh: connect to host 10\.79\.0\.99 port 22: .*; is the machine on"),
        (f"--hosts b,c.invalid {PYTHON}", r"^  c\.invalid: .*resolve hostname.*; check the name"),
        ("--hosts refused.toml", "^  b: .*Connection refused; does sshd run there, at that port"),
        (f"--hosts b,nouser@c {PYTHON}", "^  c: nouser@10.79.0.3: Permission denied .*; is the user right.*ssh-copy-id"),
        (f"--hosts b,stranger {PYTHON}", "^  stranger: Host key verification failed.; connect once by hand"),
        ("--hosts b,c --ssh-python python3.99", "^  c: python3.99 cannot be run there .*not found.*; name a Python"),
        (
            "--hosts b,c --ssh-python /usr/bin/python3",
            "^  c: (taut cannot be imported by /usr/bin/python3|.* is Python 3)",
        ),
        ("--hosts missing.toml", "^  b: no file job.py in .*/empty; copy it there, or leave directory away"),
        ("--hosts other.toml", "^  b: job.py in .*/other has SHA-256 [0-9a-f]{16}, here it has [0-9a-f]{16}"),
        ("--hosts nowhere.toml", "^  b: there is no folder /nowhere"),
        (f"--hosts b {PYTHON} --devices 7", "^  b: --devices 7: expected GPUs"),
        (f"--hosts b {PYTHON} --same-file here.npz", "^  b: no file here.npz there"),
    ],
)
def test_a_host_that_cannot_train(lab: Lab, tmp_path: Path, flags: str, words: str) -> None:
    python = f'python = "{sys.executable}"'
    (lab.folder / "empty").mkdir(exist_ok=True)
    (lab.folder / "other").mkdir(exist_ok=True)
    (lab.folder / "other" / "job.py").write_text("print()\n")
    for name, text in {
        "refused": "port = 2222",
        "missing": f'directory = "{lab.folder}/empty"',
        "other": f'directory = "{lab.folder}/other"',
        "nowhere": 'directory = "/nowhere"',
    }.items():
        (tmp_path / f"{name}.toml").write_text(f"[hosts.b]\n{python}\n{text}\n[hosts.c]\n{python}\n")
    (tmp_path / "here.npz").write_bytes(b"data")
    with lab.run(tmp_path, "run", *flags.split(), JOB) as run:
        run.until("^error: .*expected hosts that can train")
        run.until(words)
        assert run.end() == 2
    assert "Traceback" not in run.text
    assert not (tmp_path / "taut-runs").exists()
    until(lab.clean)


def test_a_host_that_fails_after_its_check_is_told(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('on purpose')\n")
    with lab.run(tmp_path, "run", "--hosts", "b,c", *PYTHON.split(), "--name", "broken", "broken.py") as run:
        assert run.end() == 1
    assert "on purpose" in run.text and "failed before it joined the run" in run.text
    assert not lab.files()
    until(lab.clean)


def test_a_busy_port_ends_what_was_begun_on_the_hosts(lab: Lab, tmp_path: Path) -> None:
    with lab.run(tmp_path, "run", "--hosts", "b", *PYTHON.split(), "--bind", "10.0.0.1", JOB) as run:
        run.until("^error: ")
        assert run.end() == 2
    assert "Traceback" not in run.text
    until(lab.clean)

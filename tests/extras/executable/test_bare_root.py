"""Executables of jobs, where there is neither Python nor a package: `make test-executable`."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import Command

Enter = Callable[..., list[str]]
pytestmark = pytest.mark.timeout(600)


def test_it_trains(enter: Enter, root: Path) -> None:
    assert subprocess.run(enter("python3"), capture_output=True, check=False).returncode == 127
    words = enter("./job", "--checkpoint-every", "20steps", "--codec", "topk", "--", "100")
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "2 replicas are identical" in ended.stderr and "strategy=sync (job)" in re.sub(" +", " ", ended.stderr)
    printed = next(line for line in ended.stderr.splitlines() if line.startswith("trained: "))
    assert "batches=8 words=['3', '100'] user=1000 python=/home/.cache/taut/" in printed
    (run,) = (root / "home" / "taut-runs").glob("2*")
    assert (run / "model.safetensors").is_file() and any((run / "checkpoints").iterdir())


def test_it_is_unpacked_once(enter: Enter, root: Path) -> None:
    unpacking = []
    for _ in range(2):
        ended = subprocess.run(enter("./job", "show", "--help"), capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        unpacking.append("unpacking" in ended.stderr)
    assert not unpacking[1]
    assert len(list((root / "home" / ".cache" / "taut").iterdir())) == 1


def test_its_workers_join_a_supervisor_elsewhere(enter: Enter, root: Path, tmp_path: Path) -> None:
    with Command(tmp_path, "supervisor", "--workers", "2", "--strategy", "sync", "--name", "run") as supervisor:
        address = supervisor.until("--join").split("--join")[1].split()[0]
        shutil.copy(tmp_path / "taut-runs" / "run" / "token", root / "home" / "token")
        shutil.chown(root / "home" / "token", 1000)
        words = enter("./job", "worker", "--join", address, "--token-file", "token")
        workers = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        told = [worker.communicate()[1] for worker in workers]
        assert [worker.returncode for worker in workers] == [0, 0], told
        assert supervisor.end() == 0
    assert "2 replicas are identical" in supervisor.text

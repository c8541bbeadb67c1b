"""`taut supervisor` and `taut worker` without an address, as processes: by a folder, and by the environment."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from taut.cli.main import main

JOB = Path(__file__).parents[1] / "engines" / "launched_job.py"
TAUT = [sys.executable, "-m", "taut"]
LIMIT_S = 100


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TAUT_")} | more


@contextmanager
def supervisor(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    with open(folder / "supervisor.log", "w") as log:
        command = [*TAUT, "supervisor", "--bind", "127.0.0.1", "--name", "first", *words]
        process = subprocess.Popen(command, cwd=folder, env=environment(), stderr=log, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def said(folder: Path) -> str:
    return (folder / "supervisor.log").read_text()


def worker(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [*TAUT, "worker", *words]
    return subprocess.run(
        command, cwd=folder, env=environment(**more), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def test_they_find_each_other_in_a_folder(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    with supervisor(tmp_path, "--announce", str(shared)) as process:
        done = worker(tmp_path, str(JOB), "1", TAUT_RENDEZVOUS=str(shared))
        assert done.returncode == 0, done.stderr + said(tmp_path)
        assert "worker 0 of 1" in done.stdout
        assert process.wait(LIMIT_S) == 0
    assert list(shared.iterdir()) == [], "the announcement ends with the run"
    token = (tmp_path / "taut-runs" / "first" / "token").read_text().strip()
    assert token not in said(tmp_path) + done.stderr + done.stdout


@pytest.mark.long  # the choice itself is tested below
def test_an_address_in_the_environment_is_enough(tmp_path: Path) -> None:
    with supervisor(tmp_path) as process:
        until_s = time.monotonic() + LIMIT_S
        while "token file:" not in said(tmp_path) and time.monotonic() < until_s and process.poll() is None:
            select.select([], [], [], 0.02)
        address = re.findall(r"supervisor: (\S+)", said(tmp_path))[0]
        file = str(tmp_path / "taut-runs" / "first" / "token")
        done = worker(tmp_path, str(JOB), "1", TAUT_SUPERVISOR=address, TAUT_TOKEN_FILE=file)
        assert done.returncode == 0, done.stderr + said(tmp_path)
        assert process.wait(LIMIT_S) == 0


@pytest.mark.parametrize(
    ("words", "more", "told"),
    [
        (["--join", "a:1", "--rendezvous", "."], {}, r"--join and --rendezvous: expected one of them"),
        (["--rendezvous", ".", "--code", "1"], {}, r"--rendezvous and --code: expected one of them"),
        (["--rendezvous", ".", "--token-file", "t"], {}, r"--token-file without --join"),
        ([], {"TAUT_SUPERVISOR": "a:1"}, r"no token: expected the run's token"),
        ([], {"TAUT_RENDEZVOUS": "missing"}, r"--rendezvous missing: expected a folder"),
    ],
)
def test_misuse_is_told_at_once(
    words: list[str],
    more: dict[str, str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("TAUT_SUPERVISOR", "TAUT_TOKEN", "TAUT_TOKEN_FILE", "TAUT_RENDEZVOUS", "TAUT_CODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in more.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as ended:
        main(["worker", *words, str(JOB)])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and re.search(told, said), said

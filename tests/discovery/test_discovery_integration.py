"""`taut supervisor` and `taut worker` without an address, as processes: by a folder, and by the environment."""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from forked_zygotes import taut_command
from page_commands import page_commands
from rich.console import Console

from taut.cli import discovery
from taut.cli.commands.worker import unanswered
from taut.cli.discovery import find_in_folder
from taut.cli.main import main
from taut.engines.launchers.rendezvous import Offer
from taut.errors import SupervisorLost

JOB = Path(__file__).parents[1] / "engines" / "launched_job.py"
TAUT = [sys.executable, "-m", "taut"]
LIMIT_S = 100


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TAUT_")} | more


@contextmanager
def supervisor(folder: Path, words: list[str], name: str = "first") -> Iterator[subprocess.Popen[str]]:
    command = [*taut_command(), *words]  # before the environment: it sets a variable
    with open(folder / "supervisor.log", "w") as log:
        told = environment(TAUT_BIND="127.0.0.1", TAUT_NAME=name)
        process = subprocess.Popen(command, cwd=folder, env=told, stderr=log, text=True)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGUSR1)  # SIGKILL for the fork
            process.wait()


def said(folder: Path) -> str:
    return (folder / "supervisor.log").read_text()


def finish(folder: Path, words: list[str], count: int, **more: str) -> list[str]:
    """Run ``count`` workers to their end, and return what they said."""
    shutil.copy(JOB, folder / "train.py")
    workers = [
        subprocess.Popen(
            [*TAUT, *words, "1"],
            cwd=folder,
            env=environment(**more),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(count)
    ]
    try:
        output = [each.communicate(timeout=LIMIT_S)[0] for each in workers]
        assert [each.returncode for each in workers] == [0] * count, [*output, said(folder)]
        return output
    finally:
        for each in workers:
            each.kill()
            each.wait()


def sought(folder: Path, console: Console) -> Offer:
    try:
        return find_in_folder(str(folder), None, unanswered, console)
    except SupervisorLost as error:
        raise AssertionError(f"{error}; the supervisor said: {said(folder)}") from error


def test_an_announcement_lives_as_long_as_its_supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is stopped takes it back; one that is killed leaves it, and nobody takes it for a supervisor."""
    announce, console = ["supervisor", "--announce", str(tmp_path)], Console(file=io.StringIO())
    with supervisor(tmp_path, announce) as process:
        found = sought(tmp_path, console)
        assert found.run == "first" and found.token == (tmp_path / "taut-runs" / "first" / "token").read_text().strip()
        assert (tmp_path / "first.taut").stat().st_mode & 0o777 == 0o600
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) == 1 and not (tmp_path / "first.taut").exists(), "there was nobody to train"
    with supervisor(tmp_path, announce, "second"):
        assert sought(tmp_path, console).run == "second"
    assert (tmp_path / "second.taut").exists(), "it was killed"
    monkeypatch.setattr(discovery, "FOLDER_S", 0.0)
    with pytest.raises(SupervisorLost, match=r"second does not answer at \S+, it may be gone \(connection refused\)"):
        find_in_folder(str(tmp_path), None, unanswered, console)


@pytest.mark.long  # each worker imports torch
def test_they_find_each_other_in_a_folder(tmp_path: Path) -> None:
    """As the page says it."""
    shared = tmp_path / "shared"
    shared.mkdir()
    first, second = (
        [word.replace("/shared", str(shared)) for word in words[1:]]
        for words in page_commands("discovery.md", "A folder that both see")
    )
    with supervisor(tmp_path, first) as process:
        output = finish(tmp_path, second, 2)
        assert all(" of 2 steps" in each for each in output)
        assert process.wait(LIMIT_S) == 0
    assert list(shared.iterdir()) == [], "the announcement ends with the run"
    token = (tmp_path / "taut-runs" / "first" / "token").read_text().strip()
    assert not any(token in each for each in (said(tmp_path), *output))


@pytest.mark.long  # which one is taken is tested below
def test_an_address_in_the_environment_is_enough(tmp_path: Path) -> None:
    """As the page says it: with keys that are made before."""
    first, making, supervising, working = page_commands("discovery.md", "An address in the environment")
    assert [word.split("=")[0] for word in first] == [word.split("=")[0] for word in working]
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    subprocess.run([*TAUT, *making[1:]], cwd=tmp_path, env=environment(), check=True, capture_output=True)
    with supervisor(tmp_path, [word.replace("7000", port) for word in supervising[1:]]) as process:
        told = dict(word.split("=", 1) for word in working[:2])
        assert told.pop("TAUT_SUPERVISOR").endswith(":7000")
        finish(tmp_path, working[3:], 1, TAUT_SUPERVISOR=f"tcp://127.0.0.1:{port}", **told)
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


@pytest.mark.parametrize("words", [["worker", str(JOB)], ["supervisor", "--announce"]], ids=lambda words: words[0])
def test_a_missing_package_is_told(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("TAUT_SUPERVISOR", "TAUT_RENDEZVOUS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(discovery, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2 and "pip install 'taut[lan]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [], "nothing was started"

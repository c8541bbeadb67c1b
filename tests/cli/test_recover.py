"""``taut supervisor --recover`` leaves a run alone whose supervisor is well."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from taut.cli.commands.supervisor import check_silent
from taut.cli.main import main
from taut.supervisor.service import Supervisor
from taut.supervisor.standby import Standby
from taut.supervisor.storage.previous_run import read_previous_run


@pytest.fixture
def going(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    """A run whose supervisor waits for its worker, and writes to its store once a second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAUT_RUNS_DIR", raising=False)
    settings = {"strategy": "async", "workers": 1, "seed": 0}
    supervisor = Supervisor(settings, tmp_path / "taut-runs" / "otter", run="otter", workers=1, seed=0)
    supervisor.start()
    watch = Standby(supervisor.run_dir)
    while watch.look() == "waiting":  # for its first word in the store
        supervisor.wait(0.05)
    try:
        yield supervisor
    finally:
        supervisor.stop()


def test_a_healthy_run_is_not_taken_over(going: Supervisor, capsys: pytest.CaptureFixture[str]) -> None:
    term = read_previous_run(going.run_dir).term
    with pytest.raises(SystemExit) as ended:
        main(["supervisor", "--recover", "otter"])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and "error: --recover otter" in said and "Traceback" not in said
    for words in (f"process {os.getpid()} on {socket.gethostname()}", "`taut drain otter`", "--force"):
        assert words in said
    assert read_previous_run(going.run_dir).term == term and not going.superseded


def test_a_run_whose_supervisor_is_silent_may_be(going: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Standby, "beats", lambda self: False)  # it is stopped, or another process has its number
    check_silent("taut-runs", "otter")


def test_force_belongs_to_recover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["supervisor", "--force"])
    assert ended.value.code == 2 and "--recover RUN beside it" in capsys.readouterr().err

"""One process conducts a run: the second is told who does, nothing stays locked after a death, and taking over works."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from taut.errors import Misuse, StorageFailed, Superseded
from taut.supervisor.prepare import Origin
from taut.supervisor.service import Supervisor
from taut.supervisor.storage.run_lock import FILE, RunLock
from taut.supervisor.storage.store_writer import StoreWriter

HOLD = """
import sys
from pathlib import Path
from taut.supervisor.storage.run_lock import RunLock
lock = RunLock.take(Path(sys.argv[1]))
lock.say(sys.argv[2])
print("taken", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holding(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the run, and seems to supervise it."""
    words = [sys.executable, "-c", HOLD, str(tmp_path / "owl"), "supervising"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "taken\n"
        try:
            yield process
        finally:
            process.kill()


def test_the_second_is_told_who_holds_it_and_death_releases_it(tmp_path: Path, holding: subprocess.Popen[str]) -> None:
    with pytest.raises(Misuse, match=f"'owl'.*process {holding.pid} on {socket.gethostname()} does.*taut drain owl"):
        RunLock.take(tmp_path / "owl")
    with pytest.raises(Misuse, match=f"process {holding.pid}"):
        Supervisor({}, tmp_path / "owl", run="owl", workers=1, seed=0)
    assert os.listdir(tmp_path / "owl") == [FILE], "the second one touched the run"
    holding.send_signal(signal.SIGKILL)
    holding.wait(30)
    RunLock.take(tmp_path / "owl").release()


def test_a_program_that_the_holder_starts_does_not_hold_it(tmp_path: Path) -> None:
    lock = RunLock.take(tmp_path)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        lock.release()
        RunLock.take(tmp_path).release()
        child.kill()


def test_a_supervisor_lets_go_when_it_ends_and_when_it_cannot_begin(tmp_path: Path) -> None:
    first = Supervisor({}, tmp_path / "owl", run="owl", workers=1, seed=0)
    assert RunLock(tmp_path / "owl").holder()[::2] == (os.getpid(), "supervising")
    first.stop()
    RunLock.take(tmp_path / "owl").release()
    (tmp_path / "blocked" / "token").mkdir(parents=True)  # it is to be a file
    with pytest.raises(StorageFailed):
        Supervisor({}, tmp_path / "blocked", run="blocked", workers=1, seed=0)
    RunLock.take(tmp_path / "blocked").release()


def remembered(folder: Path) -> None:
    """As of a run whose supervisor, of the first term, is gone."""
    first = Supervisor({"workers": 1, "seed": 0}, folder, run="owl", workers=1, seed=0)
    first._loop.persistence.ahead(0.0)
    first._loop.journal.close()
    first._loop.socket.close(0.0)
    first._loop.lock.release()


def test_who_comes_back_for_one_that_is_only_stopped_has_the_lock_when_that_is_gone(tmp_path: Path) -> None:
    remembered(tmp_path / "owl")
    stopped = RunLock.take(tmp_path / "owl")
    stopped.say("supervising")
    back = Supervisor.recover(tmp_path / "owl", port=0)
    try:
        assert not back._loop.lock.taken
        with pytest.raises(Misuse, match="no other process"):
            RunLock.take(tmp_path / "owl")
        stopped.release()
        back._loop._tick(0.0)
        assert back._loop.lock.taken
        assert stopped.holder().doing == "supervising"
        with pytest.raises(Misuse, match="no other process"):
            RunLock.take(tmp_path / "owl")
    finally:
        back.stop()


def test_nobody_comes_back_for_a_run_that_is_about_to_be_resumed(tmp_path: Path) -> None:
    remembered(tmp_path / "owl")
    resuming = RunLock.take(tmp_path / "owl")
    with pytest.raises(Superseded, match=f"process {os.getpid()} on"):
        Supervisor.recover(tmp_path / "owl", port=0)
    resuming.release()
    Supervisor.recover(tmp_path / "owl", port=0).stop()


def test_a_stand_by_that_found_the_former_one_gone_comes_too_late_for_a_resumed_run(tmp_path: Path) -> None:
    remembered(tmp_path / "owl")
    resumed = StoreWriter(tmp_path / "owl", "owl")
    assert resumed.resumed(1.0) == 1
    resumed.begin(1.0, "", {}, {})
    stand_by = StoreWriter(tmp_path / "owl", "owl")
    with pytest.raises(Superseded):
        stand_by.claim(0)
    resumed.remember(2.0, 1, ("", "", ""), b"")  # it has not superseded itself
    for store in (resumed, stand_by):
        store.close()


def test_a_lock_that_was_given_is_the_supervisors(tmp_path: Path) -> None:
    lock = RunLock.take(tmp_path / "owl")
    supervisor = Supervisor({}, tmp_path / "owl", run="owl", workers=1, seed=0, origin=Origin(lock=lock))
    assert supervisor._loop.lock is lock
    supervisor.stop()
    assert not lock.taken


@pytest.mark.parametrize("text", ["", "rubbish", "[1]", '["x", "y", "z"]', "[1, 2, 3]", "{}"])
def test_a_holder_that_cannot_be_read_has_only_just_begun(tmp_path: Path, text: str) -> None:
    lock = RunLock(tmp_path)
    lock.path.write_text(text)
    assert lock.holder().doing == "preparing"
    lock.release()

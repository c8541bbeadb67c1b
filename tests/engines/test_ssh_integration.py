"""The engine over ssh with real agents and processes; a small program in place of ssh runs the command here.

tests/extras/ssh has the same with a real sshd (make test-ssh)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from taut.engines.base import Exit
from taut.engines.ssh import agent
from taut.engines.ssh.engine import HOST_STEP, SshEngine
from taut.errors import Misuse

PATIENCE_S = 60.0
TOKEN = "a-token-that-nobody-sees"
SSH = """#!/bin/sh
if [ "$1" = -G ]; then echo "hostname 127.0.0.1"; exit; fi
while [ "$1" != -- ]; do shift; done
case $2 in *down) echo "ssh: connect to host $2 port 22: Connection refused" >&2; exit 255;; esac
echo "Welcome to $2"
exec sh -c "$3"
"""
SCRIPT = """
import os, sys, threading
from pathlib import Path
import beside
with open(os.environ["TAUT_TOKEN_FILE"]) as file:
    mode = oct(os.stat(file.name).st_mode & 0o777)
    print("token", file.read(), mode, oct(os.stat(os.path.dirname(file.name)).st_mode & 0o777), beside.WORD)
print("at", __file__, "rank", os.environ["TAUT_LOCAL_RANK"], "pid", os.getpid() + int(os.environ["TAUT_PROCESS_BASE"]))
print("bind", os.environ["TAUT_BIND"], "args", sys.argv[1:], flush=True)
while "stay" in sys.argv and not Path(sys.argv[-1]).exists():
    threading.Event().wait(0.02)
sys.exit(3 if "fail" in sys.argv else 0)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the program in place of ssh, a script and a token; temporary folders of agents are below it."""
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("WORD = 'beside'\n")
    (tmp_path / "token").write_text(TOKEN)
    for name in ("there", "logs"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "there"))
    yield tmp_path
    until(lambda: not list((tmp_path / "there").iterdir()))


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        os.sched_yield()


def engine(folder: Path, hosts: str, *args: str, **settings: object) -> SshEngine:
    environment = {"TAUT_SUPERVISOR": "tcp://127.0.0.1:7000", "TAUT_TOKEN_FILE": str(folder / "token")}
    known: dict[str, object] = {"start": "spawn", "ssh_command": str(folder / "ssh"), "ssh_python": sys.executable}
    workers = settings.pop("workers", 3)
    return SshEngine(
        folder / "train.py",
        args,
        workers,
        environment | {"TAUT_BIND": "10.0.0.1"},
        log_dir=folder / "logs",
        hosts=hosts,
        **(known | settings),
    )


def ended(started: SshEngine) -> list[Exit]:
    exits: list[Exit] = []
    deadline = time.monotonic() + PATIENCE_S
    while started.running:
        exits += started.poll(0.1)
        assert time.monotonic() < deadline, started.own_log.read_text()
    return exits


def await_started(running: SshEngine) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not all(log.exists() and "bind" in log.read_text() for log in running.logs):
        running.poll(0.1)
        assert time.monotonic() < deadline, running.own_log.read_text()


def test_workers_on_two_hosts(folder: Path) -> None:
    run = engine(folder, "a,b:2", "--epochs", "3")
    try:
        assert [text.partition(",")[0] for text in run.remarks] == ["a: worker 0", "b: workers 1 to 2"]
        run.start()
        exits = ended(run)
    finally:
        run.close()
    assert sorted(each.index for each in exits) == [0, 1, 2]
    assert all(each.clean and each.reason == "finished" for each in exits)
    for index, (host, rank) in enumerate([(0, 0), (1, 0), (1, 1)]):
        text = run.logs[index].read_text()
        assert f"token {TOKEN} 0o600 0o700 beside\n" in text
        assert "bind 127.0.0.1 args ['--epochs', '3']" in text
        assert f" rank {rank} pid " in text
        pid = int(text.partition(" pid ")[2].split()[0])
        assert pid in run.started and run.started[pid] == index
        assert HOST_STEP * (host + 1) < pid < HOST_STEP * (host + 2)
    assert "b: workers 1 to 2" in run.own_log.read_text()


def test_a_script_that_fails_and_one_that_is_terminated(folder: Path) -> None:
    run = engine(folder, "a", "fail", workers=1)
    run.start()
    try:
        (exit_,) = ended(run)
    finally:
        run.close()
    assert (exit_.code, exit_.reason, exit_.clean) == (3, "exit code 3", False)
    run = engine(folder, "a", "stay", str(folder / "never"), workers=1)
    run.start()
    try:
        await_started(run)
        run.terminate()
        (exit_,) = ended(run)
    finally:
        run.close()
    assert exit_.code == -signal.SIGTERM


def test_closing_ends_the_workers(folder: Path) -> None:
    run = engine(folder, "a,b", "stay", str(folder / "never"), workers=2)
    run.start()
    await_started(run)
    pids = [pid % HOST_STEP for pid in run.pids]
    assert len(pids) == 2 and all(Path(f"/proc/{pid}").exists() for pid in pids)
    run.close()
    run.close()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))
    assert not list((folder / "there").iterdir())


def test_no_command_line_shows_the_token(folder: Path) -> None:
    run = engine(folder, "a", "stay", str(folder / "never"), workers=1)
    run.start()
    try:
        await_started(run)
        listing = subprocess.run(["ps", "-eww", "-o", "args="], capture_output=True, text=True, check=True).stdout
        assert "taut-python" in listing
        assert TOKEN not in listing
        pids = [pid % HOST_STEP for pid in run.pids]
        assert all(TOKEN.encode() not in Path(f"/proc/{pid}/environ").read_bytes() for pid in pids)
        assert all(TOKEN not in log.read_text() for log in [run.own_log])
    finally:
        run.close()


def test_a_host_that_is_lost_takes_its_workers_along(folder: Path) -> None:
    run = engine(folder, "a,b", "stay", str(folder / "go on"), workers=2)
    run.start()
    try:
        await_started(run)
        (there,) = [pid % HOST_STEP for pid, index in run.pids.items() if index == 1]
        lost = run._hosts.sessions[1]._process
        assert lost is not None
        lost.terminate()  # as when the connection breaks: the agent cleans up by itself
        exits: list[Exit] = []
        deadline = time.monotonic() + PATIENCE_S
        while not exits and time.monotonic() < deadline:
            exits = run.poll(0.1)
        (exit_,) = exits
        assert (exit_.index, exit_.clean, exit_.reason) == (1, False, "killed by the loss of host b")
        assert exit_.pid == there + 2 * HOST_STEP
        until(lambda: not Path(f"/proc/{there}").exists())
        assert run.running
        (folder / "go on").touch()
        (exit_,) = ended(run)
        assert exit_.index == 0 and exit_.clean
    finally:
        run.close()


@pytest.mark.parametrize(
    ("hosts", "settings", "words"),
    [
        (
            "a,is-down",
            {},
            "1 of 2 hosts: expected hosts that can train:\n  is-down: ssh: connect to host is-down port 22",
        ),
        ("a", {"ssh_python": "/nowhere/python"}, "a: /nowhere/python cannot be run there"),
        ("a", {"ssh_python": "true"}, "a: true ended with exit code 0 (Welcome to a)"),
        ("a", {"devices": "7"}, "a: --devices 7: expected GPUs"),
        ("a", {"same_file": ("missing.npz",)}, "--same-file missing.npz: expected a file that can be read here"),
        ("a", {"ssh_command": "no-such-ssh"}, "--ssh-command = 'no-such-ssh': expected the ssh program"),
        ("HOSTS", {}, "a: there is no folder /nowhere; make it"),
    ],
)
def test_a_host_that_cannot_train_is_told_and_left_clean(
    folder: Path, hosts: str, settings: dict[str, object], words: str
) -> None:
    (folder / "hosts.toml").write_text('[hosts.a]\ndirectory = "/nowhere"\n')
    with pytest.raises(Misuse) as told:
        engine(folder, hosts.replace("HOSTS", str(folder / "hosts.toml")), workers=hosts.count(",") + 1, **settings)
    assert words in str(told.value)
    assert not list((folder / "there").iterdir())


def test_a_directory_with_another_script(folder: Path) -> None:
    there = folder / "job"
    there.mkdir()
    (there / "beside.py").write_text("WORD = 'another'\n")
    (folder / "hosts.toml").write_text(f'[hosts.a]\ndirectory = "{there}"\n')
    with pytest.raises(Misuse) as told:
        engine(folder, str(folder / "hosts.toml"), workers=1)
    assert f"a: no file train.py in {there}; copy it there" in str(told.value)
    assert f"a: beside.py in {there} has SHA-256 {agent.digest(str(there / 'beside.py'))[:16]}, here it has " in str(
        told.value
    )
    for name in ("train.py", "beside.py"):
        (there / name).write_bytes((folder / name).read_bytes())
    run = engine(folder, str(folder / "hosts.toml"), workers=1)
    try:
        run.start()
        (exit_,) = ended(run)
        assert exit_.clean
    finally:
        run.close()
    assert f"at {there}/train.py" in run.logs[0].read_text()


def test_an_agent_that_hears_nothing_ends(tmp_path: Path) -> None:
    text = Path(agent.__file__).read_text().replace("SILENCE_S = 30.0", "SILENCE_S = 3.0")
    with subprocess.Popen(
        [sys.executable, "-c", text],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == agent.READY + "\n"
        task = {"directory": "", "sources": [], "files": [], "module": "json.tool", "workers": 1, "devices": None}
        task |= {"threads": None, "preload": []}
        process.stdin.write(json.dumps({"look": task}) + "\n")
        process.stdin.flush()
        facts = json.loads(process.stdout.readline())["facts"]
        assert facts["module"] and facts["directory"]
        assert process.wait(PATIENCE_S) == 0  # its input is still open
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith("torchinductor_")]  # torch's own

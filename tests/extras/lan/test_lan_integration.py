"""A supervisor and workers find each other by multicast DNS, on the loopback interface: `make test-lan`."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from page_commands import page_commands

from taut.discovery.lan import LanAnnouncer, browse
from taut.testing.terminal import Terminal

JOB = Path(__file__).parents[2] / "engines" / "launched_job.py"
TAUT = [sys.executable, "-m", "taut"]
HERE = "127.0.0.1"
LIMIT_S = 100

pytestmark = pytest.mark.timeout(3 * LIMIT_S)


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TAUT_")} | more


class Supervisor:
    """``taut supervisor --announce`` in a folder of its own, on the loopback interface."""

    def __init__(self, folder: Path, name: str, *words: str, within: str | None = None) -> None:
        self.log, self.token = folder / f"{name}.log", folder / "taut-runs" / name / "token"
        place = ["--bind", HERE] if within is None else []
        command = [*TAUT, "supervisor", *place, "--name", name, *words, "--announce"]
        if within is not None:
            command = ["ip", "netns", "exec", within, *command]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, cwd=folder, env=environment(), stderr=log)

    def said(self) -> str:
        return self.log.read_text()

    def codes(self, count: int = 1) -> list[str]:
        """Return the codes that it has shown; wait for ``count`` of them."""
        until_s = time.monotonic() + LIMIT_S
        while len(found := re.findall(r"code for the next worker: (\S+)", self.said())) < count:
            assert time.monotonic() < until_s and self.process.poll() is None, self.said()
            select.select([], [], [], 0.05)
        return found


@contextmanager
def supervisor(folder: Path, name: str, *words: str, within: str | None = None) -> Iterator[Supervisor]:
    one = Supervisor(folder, name, *words, within=within)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.wait()


def worker(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [*TAUT, "worker", "--bind", HERE, *words, str(JOB), "1"]
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_a_person_types_the_code(tmp_path: Path) -> None:
    """A wrong one first, which is refused and asked for again."""
    with supervisor(tmp_path, "calm-otter") as one:
        (code,) = one.codes()
        command = [*TAUT, "worker", "--bind", HERE, str(JOB), "1"]
        with Terminal(command, columns=160, cwd=tmp_path) as terminal:
            terminal.wait_for("code that the supervisor of calm-otter shows:", LIMIT_S)
            terminal.press(f"{(int(code.replace('-', '')) + 1) % 10**8:08}\r")
            terminal.wait_for("wrong code", LIMIT_S)
            terminal.press(f"{code}\r")
            terminal.wait_for("worker 0 of 1", LIMIT_S)
            assert terminal.exit_code(LIMIT_S) == 0, terminal.text
            assert one.token.read_text().strip() not in terminal.text + one.said()
        assert one.process.wait(LIMIT_S) == 0
        assert len(one.codes()) == 2, "the first one let a worker in, and no other will"


def test_the_commands_of_the_page(tmp_path: Path) -> None:
    first, second, third = page_commands("discovery.md", "A local network")
    shutil.copy(JOB, tmp_path / "train.py")
    with supervisor(tmp_path, "calm-otter", *first[2:-1]) as one:
        assert first[-1] == "--announce"
        workers = []
        for count, words in enumerate((second, third), 1):
            told = environment(TAUT_BIND=HERE, TAUT_CODE=one.codes(count)[-1])
            workers.append(subprocess.Popen([*TAUT, *words[1:], "1"], cwd=tmp_path, env=told, stderr=subprocess.DEVNULL))
            one.codes(count + 1)
        assert [each.wait(LIMIT_S) for each in (*workers, one.process)] == [0, 0, 0], one.said()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="network namespaces need root and ip")
def test_two_hosts(tmp_path: Path) -> None:
    """Two network namespaces with a cable between them: all interfaces, no flags but --announce."""
    names = [f"taut-lan-{side}-{os.getpid() % 10_000}" for side in "ab"]
    with ExitStack() as stack:
        for name in names:
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
        ip("link", "add", "lan", "netns", names[0], "type", "veth", "peer", "name", "lan", "netns", names[1])
        for number, name in enumerate(names, 1):
            ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "lan")
            for link in ("lo", "lan"):
                ip("-n", name, "link", "set", link, "up")
            ip("-n", name, "route", "add", "default", "via", f"10.77.0.{3 - number}")
        one = stack.enter_context(supervisor(tmp_path, "calm-otter", within=names[0]))
        command = ["ip", "netns", "exec", names[1], *TAUT, "worker", str(JOB), "1"]
        told = environment(TAUT_CODE=one.codes()[0])
        done = subprocess.run(
            command, cwd=tmp_path, env=told, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert done.returncode == 0 and "found calm-otter at 10.77.0.1:" in done.stderr, done.stderr + one.said()
        assert one.process.wait(LIMIT_S) == 0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def test_two_supervisors_are_told_apart(tmp_path: Path) -> None:
    with supervisor(tmp_path, "calm-otter") as one, supervisor(tmp_path, "shy-crab") as other:
        one.codes(), other.codes()
        done = worker(tmp_path)
        told = r"2 supervisors in the local network: calm-otter at \S+ and shy-crab at \S+: expected one; .*--run NAME"
        assert done.returncode == 2 and re.search(told, done.stderr), done.stderr
        done = worker(tmp_path, "--run", "shy-crab", TAUT_CODE=other.codes()[0])
        assert done.returncode == 0, done.stderr + other.said()
        assert other.process.wait(LIMIT_S) == 0 and one.process.poll() is None


def test_a_wrong_code_ends_a_worker_that_nobody_watches(tmp_path: Path) -> None:
    with supervisor(tmp_path, "calm-otter") as one:
        (code,) = one.codes()
        done = worker(tmp_path, "--code", f"{(int(code.replace('-', '')) + 1) % 10**8:08}")
        assert done.returncode == 2 and "error: wrong code" in done.stderr, done.stderr
        done = worker(tmp_path)
        assert done.returncode == 2 and "no terminal to ask for it" in done.stderr, done.stderr


def test_none_found_says_what_to_try(tmp_path: Path) -> None:
    done = worker(tmp_path)
    told = r"error: no supervisor in the local network for \d+ s; start `taut supervisor --announce`.*--join ADDRESS"
    assert done.returncode == 1 and re.search(told, done.stderr), done.stderr


def test_what_is_announced_holds_no_secret_and_goes_away() -> None:
    with ExitStack() as stack:
        stack.enter_context(LanAnnouncer("calm-otter", f"tcp://{HERE}:7000", 7007, HERE))
        (found,) = browse("calm-otter", 30.0, HERE)
        assert (found.run, found.address) == ("calm-otter", f"{HERE}:7007")
    assert browse(None, 2.0, HERE) == []

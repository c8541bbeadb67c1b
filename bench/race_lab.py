"""One run of the race: the hosts, their processes, and what is read from outside while they train.

Bytes are those of the interfaces, processor time is that of all processes in the hosts' network namespaces, and the
weights that rank 0 writes are evaluated here, a part of the held-out data at a time while the race goes on, and all of it
afterwards.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from peers.environments import python
from peers.task import Judge
from peers.ways import Way
from processes import LAB, ONE_THREAD, TAUT

WORLD, HEAD = 4, "10.77.0.1"
KILLED, SLOW = 2, 3  # ranks
POLL_S, START_S = 0.25, 400.0
JUDGE_S, JUDGED_PARTS = 3.0, 2  # how often weights are evaluated while the race goes on, and on how many batches of 500
DEATH = signal.SIGKILL
Log = list[tuple[float, int, int]]


@dataclass(frozen=True)
class Cell:
    """What is run once: ``rate`` and ``delay_us`` as netlab.sh takes them."""

    way: str
    model: str = "mlp"
    link: str = "100mbit"
    slowness: float = 1.0
    kill: bool = False


LINKS = {"100mbit": ("100mbit", 0), "1gbit": ("1gbit", 0), "unlimited": ("none", 0), "100mbit-20ms": ("100mbit", 5000)}


@dataclass
class Run:
    """What was seen of a run, by the monotonic clock; ``wire`` and ``cpu`` hold (time, bytes) and (time, seconds)."""

    command_s: float
    logs: dict[int, Log] = field(default_factory=dict)
    wire: list[tuple[float, float]] = field(default_factory=list)
    cpu: list[tuple[float, float]] = field(default_factory=list)
    killed_s: float | None = None
    exits: dict[int, tuple[float, int]] = field(default_factory=dict)  # rank -> when, exit code
    scores: list[tuple[float, float]] = field(default_factory=list)
    errors: str = ""


class Hosts:
    """The processes on the lab's hosts, told by their network namespaces."""

    def __init__(self) -> None:
        self.inodes = {os.stat(f"/run/netns/{LAB}-h{host + 1}").st_ino: host for host in range(WORLD)}
        self._hosts: dict[int, int | None] = {}
        self._cpu_s: dict[int, float] = {}

    def processes(self) -> dict[int, int]:
        """Process -> the number of its host, from 0."""
        found: dict[int, int] = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                pid = int(name)
                with contextlib.suppress(OSError):
                    host = self.inodes.get(os.stat(f"/proc/{pid}/ns/net").st_ino)
                    if host is not None:
                        found[pid] = host
        return found

    def cpu_s(self) -> float:
        """Processor time of all of them until now, those that have ended included."""
        for pid in self.processes():
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                self._cpu_s[pid] = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        return sum(self._cpu_s.values())

    def kill(self, host: int | None = None) -> None:
        """Kill what runs on a host, or on all of them."""
        for _ in range(3):
            for pid, where in self.processes().items():
                if host in (None, where):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, DEATH)


def wire_bytes() -> float:
    """What the hosts have sent so far, by their switch's counters."""
    told = subprocess.run(
        ["ip", "-n", f"{LAB}-sw", "-s", "-j", "link"], check=True, capture_output=True, text=True
    ).stdout
    return float(sum(link["stats64"]["rx"]["bytes"] for link in json.loads(told) if link["ifname"].startswith("p")))


@contextlib.contextmanager
def lab_up(netlab: Path, link: str) -> Iterator[None]:
    rate, delay_us = LINKS[link]
    environment = os.environ | {"NETLAB": LAB}
    subprocess.run([str(netlab), "up", str(WORLD), rate, str(delay_us)], check=True, env=environment)
    try:
        yield
    finally:
        subprocess.run([str(netlab), "down"], check=True, env=environment)


def start(way: Way, cell: Cell, netlab: Path, data: Path, out: Path) -> list[subprocess.Popen[bytes]]:
    """Start what the way takes on each host; return the workers' processes, and the supervisor's behind them."""
    environment = os.environ | ONE_THREAD | {"NETLAB": LAB, "COLUMNS": "300", "PYTHONUNBUFFERED": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # a second start is what is measured

    def on(host: int, name: str, *words: str) -> subprocess.Popen[bytes]:
        log = (out / f"{name}.txt").open("wb")
        whole = [str(netlab), "exec", str(host + 1), *words]
        return subprocess.Popen(whole, stdout=log, stderr=subprocess.STDOUT, cwd=out, env=environment)

    common = ["--model", cell.model, "--data", str(data), "--out", str(out), "--head", HEAD, *way.args]
    begin, beside = [str(python(way.environment))], []
    if way.is_taut:
        words = ["supervisor", "--workers", str(WORLD), "--bind", HEAD, "--port", "7700", "--name", "race"]
        beside = [on(0, "supervisor", str(TAUT), *words, "--runs-dir", str(out / "runs"), *way.options)]
        token = out / "runs" / "race" / "token"
        deadline_s = time.monotonic() + START_S
        while not token.exists():
            if time.monotonic() > deadline_s:
                raise SystemExit(f"the supervisor did not come up: {(out / 'supervisor.txt').read_text()}")
            time.sleep(0.02)
        begin = [str(TAUT), "worker", "--join", f"{HEAD}:7700", "--token-file", str(token)]
    started = []
    for rank in range(WORLD):
        address = f"10.77.0.{rank + 1}"
        bind = ["--bind", address] if way.is_taut else []
        slowness = str(cell.slowness if rank == SLOW else 1.0)
        own = ["--rank", str(rank), "--world", str(WORLD), "--address", address, "--slowness", slowness]
        started.append(on(rank, f"worker-{rank}", *begin, *bind, str(way.path), *common, *own))
    return started + beside


def read_logs(out: Path) -> dict[int, Log]:
    logs: dict[int, Log] = {}
    for rank in range(WORLD):
        path = out / f"{rank}.log"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        rows = [line.split() for line in lines if line.endswith("\n")]
        logs[rank] = [(float(t), int(samples), int(steps)) for t, samples, steps in rows]
    return logs


class Watch:
    """Looks at a run until it is over: the target is reached, the time is up, or no worker is left."""

    def __init__(
        self, run: Run, out: Path, hosts: Hosts, started: list[subprocess.Popen[bytes]], judge: Judge | None
    ) -> None:
        self.run, self.out, self.hosts, self.started, self.judge = run, out, hosts, started, judge
        self.seen = ""
        self.good, self.judged_s = 0, 0.0

    def begun_s(self) -> float | None:
        """When the first step of the last worker was made."""
        firsts = [log[0][0] for log in read_logs(self.out).values() if log]
        return max(firsts) if len(firsts) == WORLD else None

    def look(self) -> None:
        now_s = time.monotonic()
        self.run.wire.append((now_s, wire_bytes()))
        self.run.cpu.append((now_s, self.hosts.cpu_s()))
        for rank, process in enumerate(self.started[:WORLD]):
            if rank not in self.run.exits and process.poll() is not None:
                self.run.exits[rank] = (now_s, process.returncode)

    def over(self) -> bool:
        """Whether the newest weights are good enough, twice in turn; and whether nobody is left."""
        if len(self.run.exits) == WORLD:
            return True
        if self.judge is None or time.monotonic() < self.judged_s + JUDGE_S:
            return False
        newest = max(self.out.glob("*.weights"), key=lambda path: float(path.stem), default=None)
        if newest is None or newest.name == self.seen:
            return False
        self.seen, self.judged_s = newest.name, time.monotonic()
        self.good = self.good + 1 if self.judge.reached(self.judge.score(newest, JUDGED_PARTS), margin=0.3) else 0
        return self.good >= 2

    def until(self, end_s: float) -> bool:
        """Watch until the time; say whether it was over before."""
        looked_s = 0.0
        while (now_s := time.monotonic()) < end_s:
            if now_s - looked_s >= 1.0:
                self.look()
                looked_s = now_s
                if self.over():
                    return True
            time.sleep(POLL_S)
        self.look()
        return False


def race(cell: Cell, way: Way, netlab: Path, data: Path, out: Path, limit_s: float, *, to_target: bool) -> Run:
    """Run a cell once; ``limit_s`` counts from the first step of the last worker."""
    out.mkdir(parents=True)
    judge = Judge(cell.model, data) if to_target else None
    with lab_up(netlab, cell.link):
        run, hosts = Run(time.monotonic()), Hosts()
        started = start(way, cell, netlab, data, out)
        watch = Watch(run, out, hosts, started, judge)
        try:
            while watch.begun_s() is None and len(run.exits) < WORLD and time.monotonic() < run.command_s + START_S:
                watch.until(time.monotonic() + POLL_S)
            begun_s = watch.begun_s()
            if begun_s is not None and cell.kill:
                watch.until(begun_s + limit_s / 2)
                run.killed_s = time.monotonic()
                hosts.kill(KILLED)
            if begun_s is not None:
                watch.until(begun_s + limit_s)
        finally:
            hosts.kill()
            for process in started:
                process.wait()
    run.logs = read_logs(out)
    run.errors = "\n".join((out / f"worker-{rank}.txt").read_text(errors="replace")[-1500:] for rank in range(WORLD))
    if judge is not None:
        run.scores = first_good(judge, sorted(out.glob("*.weights"), key=lambda path: float(path.stem)))
    return run


def first_good(judge: Judge, files: list[Path]) -> list[tuple[float, float]]:
    """Scores on all held-out data of weights from the last on back, until well before the target, and the last one's."""
    found: list[tuple[float, float]] = []
    for path in reversed(files):
        found.append((float(path.stem), judge.score(path)))
        if len(found) > 3 and not any(judge.reached(score) for _, score in found[-4:]):
            break
    return sorted(found)

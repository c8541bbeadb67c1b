"""Does a run survive what rooms do to machines? Real processes: six workers, every few seconds one of them is killed, or
stopped for a while, or the supervisor is killed and comes back.

Steps take 50 ms of sleep, so that the workers do not fight for cores. The capacity that was alive is the time that
workers spent in training and were not stopped, times the rate of a quiet run with the same workers. A worker that was
killed is replaced. In the end everything must be accounted for: replicas equal by hash, no sample of any pass left out.
Where the time of the workers went (computing, waiting for data or for others, ...) is told for both runs, by their own
account, without the time for which they were stopped (that is taken off what they computed).
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from processes import JOBS
from report import arguments, report, row
from taut.supervisor.storage.store_reader import StoredRun, load_run

WORKERS = 6
STEP_S = 0.05
EVERY_S = (2.0, 5.0)  # between two blows
STOPPED_S = 3.0
LIMIT_S = 120.0  # for the end, once the data is used up: a run that hangs must say so
KINDS = ("compute", "encode", "send", "wait", "merge", "data")
TAUT = [sys.executable, "-m", "taut.cli.main"]


@dataclass
class Room:
    """The processes of one run. ``stopped_s``: per process, how long it was made to stand still."""

    folder: Path
    chance: random.Random
    supervisor: subprocess.Popen[bytes] | None = None
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    stopped_s: dict[int, float] = field(default_factory=dict)
    frozen: dict[int, float] = field(default_factory=dict)  # process -> when it may go on
    blows: dict[str, int] = field(default_factory=dict)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{len(list(self.folder.glob('*.log')))}.log").open("wb")
        with log:
            return subprocess.Popen(
                [*TAUT, *words], cwd=self.folder, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"}
            )

    def open(self) -> None:
        given = ["--workers", str(WORKERS), "--name", "run", "--bind", "127.0.0.1", "--json"]
        self.supervisor = self.start("supervisor", *given)
        self.until(lambda: (self.folder / "taut-runs/run/token").exists() and "tcp://" in self._said(), "the supervisor")
        for _ in range(WORKERS):
            self.hire()
        self.until(lambda: self.training() >= WORKERS, "the start")

    def _said(self) -> str:
        return (self.folder / "0.log").read_text()

    def hire(self) -> None:
        address = next(word for word in self._said().split() if word.startswith("tcp://"))
        job = [str(JOBS / "churn.py"), "--gate", str(self.folder / "gate"), "--step", str(STEP_S)]
        self.workers.append(self.start("worker", "--join", address, "--token-file", "taut-runs/run/token", *job))

    def record(self) -> StoredRun:
        return load_run(self.folder / "taut-runs", "run")

    def training(self) -> int:
        latest = self.record().latest()
        return sum(one.steps > 0 for one in latest.values())

    def until(self, condition: Any, what: str, limit_s: float = LIMIT_S) -> None:
        deadline_s = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline_s:
                raise SystemExit(f"waited in vain for {what}; see {self.folder}")
            self.thaw()
            time.sleep(0.1)

    def thaw(self) -> None:
        now_s = time.monotonic()
        for pid, due_s in list(self.frozen.items()):
            if now_s >= due_s:
                os.kill(pid, signal.SIGCONT)
                del self.frozen[pid]

    def blow(self) -> None:
        """One of the three, at random; the supervisor less often than workers, of whom there are six."""
        alive = [one for one in self.workers if one.poll() is None and one.pid not in self.frozen]
        kind = self.chance.choice(["kill", "kill", "stop", "stop", "supervisor"])
        if kind != "supervisor" and len(alive) < 3:
            return
        self.blows[kind] = self.blows.get(kind, 0) + 1
        if kind == "supervisor":
            assert self.supervisor is not None
            self.supervisor.kill()
            self.supervisor.wait()
            self.supervisor = self.start("supervisor", "--recover", "run", "--json")
            return
        victim = self.chance.choice(alive)
        if kind == "kill":
            victim.kill()
            victim.wait()
            self.hire()
        else:
            os.kill(victim.pid, signal.SIGSTOP)
            self.frozen[victim.pid] = time.monotonic() + STOPPED_S
            self.stopped_s[victim.pid] = self.stopped_s.get(victim.pid, 0.0) + STOPPED_S

    def close(self) -> dict[str, Any]:
        """Let it end, and say how it ended."""
        for pid in list(self.frozen):
            self.frozen[pid] = 0.0
        self.thaw()
        (self.folder / "gate").touch()
        assert self.supervisor is not None
        code = self.supervisor.wait(LIMIT_S)
        return {"code": code, "outcome": self.record().outcome or {}}

    def end(self) -> None:
        for one in [*self.workers, *([self.supervisor] if self.supervisor else [])]:
            if one.poll() is None:
                one.kill()
                one.wait()

    def capacity(self) -> tuple[int, float]:
        """Steps made, and seconds in which workers trained and were not stopped, by their last words."""
        record = self.record()
        pids = {worker.rank: worker.pid for worker in record.workers}
        latest = record.latest()
        steps = sum(one.steps for one in latest.values())
        alive_s = sum(one.wall_s - self.stopped_s.get(pids.get(rank, 0), 0.0) for rank, one in latest.items())
        return steps, alive_s

    def account(self) -> dict[str, float]:
        """What the workers' time went into, as shares."""
        latest = self.record().latest().values()
        spent = {kind: sum(getattr(one, f"{kind}_s") for one in latest) for kind in KINDS}
        spent["compute"] -= sum(self.stopped_s.values())
        return {kind: seconds / max(1e-9, sum(spent.values())) for kind, seconds in spent.items()}


def one_run(folder: Path, seconds: float, seed: int, quiet: bool) -> dict[str, Any]:
    folder.mkdir(parents=True)
    room = Room(folder, random.Random(seed))
    try:
        room.open()
        ended_s = time.monotonic() + seconds
        while time.monotonic() < ended_s:
            pause_s = room.chance.uniform(*EVERY_S)
            due_s = min(ended_s, time.monotonic() + pause_s)
            room.until(lambda due_s=due_s: time.monotonic() >= due_s, "the next blow", seconds + LIMIT_S)
            if not quiet and time.monotonic() < ended_s:
                room.blow()
                sys.stderr.write(f"\r{max(0.0, ended_s - time.monotonic()):.0f} s left, {room.blows} ")
        sys.stderr.write("\n")
        found = room.close()
        steps, alive_s = room.capacity()
        figures = {"rate": steps / alive_s, "steps": steps, "alive_s": alive_s, "blows": room.blows}
        return {**found, **figures, "account": room.account()}
    finally:
        room.end()


def main(args: argparse.Namespace) -> None:
    seconds = args.seconds or (25.0 if args.quick else 300.0)
    folder = Path(tempfile.mkdtemp(prefix="taut-chaos-"))  # left behind where something went wrong
    quiet = one_run(folder / "quiet", 10.0 if args.quick else 30.0, args.seed, quiet=True)
    rough = one_run(folder / "rough", seconds, args.seed, quiet=False)
    outcome = rough["outcome"]
    if rough["code"] == 0:
        shutil.rmtree(folder)
    else:
        sys.stderr.write(f"see {folder}\n")
    rows = [
        row("workers killed", rough["blows"].get("kill", 0), ""),
        row("workers stopped for a while", rough["blows"].get("stop", 0), ""),
        row("supervisors killed", rough["blows"].get("supervisor", 0), ""),
        row("steps a second and worker, quiet", quiet["rate"], "/s"),
        row("steps a second and worker that was alive, under blows", rough["rate"], "/s"),
        row("of the capacity that was alive", rough["rate"] / quiet["rate"], "x", at_least=0.9),
        row("the run ended by itself, exit code", rough["code"], "", at_most=0),
        row("replicas identical", float(bool(outcome.get("identical"))), "", at_least=1),
        row("samples of passes begun that were not trained on", outcome.get("samples_undone", -1), "", at_most=0),
        row("samples dealt again after deaths", outcome.get("samples_again", -1), ""),
    ]
    for name, run in (("quiet", quiet), ("under blows", rough)):
        rows += [row(f"share of the workers' time, {name}: {kind}", run["account"][kind], "") for kind in KINDS]
    report("chaos", rows, args)


if __name__ == "__main__":
    parser = arguments(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=0.0, help="of blows; default: 300, or 25 with --quick")
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())

"""How long do the others stand still when a worker dies? Real processes: four workers whose steps take 50 ms of sleep,
so that they do not fight for cores; one of them is killed, and the survivors' own records of their steps are read.

``joined``: workers started by ``taut worker --join``, where only the connection and the silence tell. ``run``: under
``taut run``, whose engine sees that a process ended. Also: a death before the detector has learnt
anything (``early``), a worker that is ``stopped``, which keeps its connection, so that only silence tells, and one that
is ``dismissed`` (``taut drain RUN WORKER``), which hands everything over and goes.

Detection is the supervisor's "gone" event. Strategies that wait for each other must go on within 1.5 s of it (three
heartbeats). Where nobody waits, or whoever waits trains on, the longest pause between two steps may be 0.5 s longer than
in the quiet stretch before.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from processes import JOBS
from report import Row, arguments, report, row
from taut.errors import Misuse
from taut.supervisor.control import Dismiss, order
from taut.supervisor.storage.previous_run import read_previous_run
from taut.supervisor.storage.store_reader import StoredRun, load_run

WORKERS = 4
STEP_S = 0.05
QUIET_S = 5.0  # before the blow: the pauses of an undisturbed run
EARLY_S = 0.5
AFTER_S = 1.5  # after the first steps that follow the detection
LIMIT_S = 120.0  # a run that hangs must say so
GO_ON_S = 1.5  # three heartbeats
MORE_S = 0.5  # than the longest pause of the quiet stretch, where nobody waits
TAUT = [sys.executable, "-m", "taut.cli.main"]
NEVER_WAIT = ("async", "gossip", "adpsgd", "server", "averaging", "dpsgd", "easgd", "diloco")  # not for the dead
STRATEGIES = (
    "sync",
    "sync:backup=1",
    "ssp:3",
    "averaging:every=4",
    "dpsgd",
    "diloco:every=4",
    "async",
    "gossip",
    "easgd",
    "easgd:every=2",
)


@dataclass(frozen=True)
class Case:
    """One run and one blow."""

    strategy: str
    way: str  # run or joined
    blow: str = "killed"  # or stopped, or dismissed
    quiet_s: float = QUIET_S

    @property
    def waits(self) -> bool:
        return self.strategy.partition(":")[0] not in NEVER_WAIT

    def __str__(self) -> str:
        early = ", early" if self.quiet_s < QUIET_S else ""
        return f"{self.strategy}, {self.way}{early}, {self.blow}"


@dataclass(frozen=True)
class Seen:
    """What was measured, in seconds. ``reason``: why the supervisor gave the worker up."""

    detected_s: float
    went_on_s: float  # after the detection, the last survivor's next step
    pause_s: float  # the longest between two steps of a survivor, around the blow
    quiet_pause_s: float
    reason: str


class Room:
    """The processes of one run, in a folder of its own."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.folder, self.case = folder, case
        self.started: list[subprocess.Popen[bytes]] = []

    def open(self) -> None:
        job = [str(JOBS / "footsteps.py"), "--out", str(self.folder), "--step", str(STEP_S)]
        given = ["--workers", str(WORKERS), "--name", "run", "--strategy", self.case.strategy, "--json"]
        if self.case.way == "run":
            self._start("run", *given, "--threads", "1", *job)
            return
        log = self._start("supervisor", *given, "--bind", "127.0.0.1")
        self.until(lambda: "tcp://" in log.read_text(), "the supervisor")
        address = next(word for word in log.read_text().split() if word.startswith("tcp://"))
        for _ in range(WORKERS):
            self._start("worker", "--join", address, "--token-file", "taut-runs/run/token", *job)

    def _start(self, *words: str) -> Path:
        path = self.folder / f"{len(self.started)}.log"
        with path.open("wb") as log:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            self.started.append(
                subprocess.Popen([*TAUT, *words], cwd=self.folder, stdout=log, stderr=log, env=environment)
            )
        return path

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not condition():
            if time.monotonic() > deadline_s:
                raise SystemExit(f"{self.case}: waited in vain for {what}; see {self.folder}")
            time.sleep(0.05)

    def record(self) -> StoredRun | None:
        try:
            return load_run(self.folder / "taut-runs", "run")
        except Misuse:
            return None  # not there yet

    def steps(self, pid: int) -> list[float]:
        """When this process made its steps, in seconds since 1970."""
        path = self.folder / f"{pid}.steps"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [float(line) for line in lines]

    def pids(self) -> list[int]:
        """By rank."""
        record = self.record()
        return [] if record is None else [worker.pid for worker in record.workers]

    def gone(self, pid: int) -> tuple[float, str] | None:
        record = self.record()
        assert record is not None
        found = next((worker for worker in record.workers if worker.pid == pid), None)
        return None if found is None or found.gone is None else (found.gone, found.reason)

    def strike(self, pid: int, rank: int) -> None:
        if self.case.blow == "dismissed":
            order(read_previous_run(self.folder / "taut-runs" / "run"), Dismiss(rank, "dismissed", False))
        else:
            os.kill(pid, signal.SIGSTOP if self.case.blow == "stopped" else signal.SIGKILL)

    def end(self, pids: list[int]) -> None:
        for one in self.started:
            one.kill()
            one.wait()
        for pid in pids:  # stopped ones, and those of a launcher that was killed
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


def one_case(folder: Path, case: Case) -> Seen:
    folder.mkdir(parents=True)
    room = Room(folder, case)
    pids: list[int] = []
    try:
        room.open()
        room.until(lambda: len(room.pids()) == WORKERS and all(room.steps(pid) for pid in room.pids()), "the first steps")
        pids = room.pids()
        begun_s = time.time()
        room.until(lambda: time.time() > begun_s + case.quiet_s, "a quiet stretch")
        rank = 0 if case.blow == "dismissed" else 1  # the first one serves the others, where somebody does
        victim, others = pids[rank], [pid for pid in pids if pid != pids[rank]]
        blow_s = time.time()
        room.strike(victim, rank)
        room.until(lambda: room.gone(victim) is not None, "the detection")
        gone = room.gone(victim)
        assert gone is not None
        room.until(lambda: all(room.steps(pid)[-1] > gone[0] + AFTER_S for pid in others), "going on")
        return _seen([room.steps(pid) for pid in others], begun_s, blow_s, *gone)
    finally:
        room.end(pids)


def _seen(steps: list[list[float]], begun_s: float, blow_s: float, gone_s: float, reason: str) -> Seen:
    went_on_s = max(next(at for at in one if at > gone_s) for one in steps)
    quiet = [gap for one in steps for gap in gaps([at for at in one if begun_s < at <= blow_s])]
    rough = [
        gap for one in steps for gap in gaps([max(at for at in one if at <= blow_s), *(at for at in one if at > blow_s)])
    ]
    return Seen(gone_s - blow_s, went_on_s - gone_s, max(rough), max(quiet, default=STEP_S), reason)


def rows_of(case: Case, seen: Seen) -> list[Row]:
    rows = [row(f"{case}: to detection", seen.detected_s, "s")]
    if case.waits:
        rows.append(row(f"{case}: from detection to going on", seen.went_on_s, "s", at_most=GO_ON_S))
        rows.append(row(f"{case}: longest pause", seen.pause_s, "s"))
    else:
        most_s = seen.quiet_pause_s + MORE_S
        rows.append(row(f"{case}: longest pause", seen.pause_s, "s", at_most=round(most_s, 3)))
    return rows


def cases(quick: bool) -> list[Case]:
    if quick:
        return [
            Case("sync", "run", quiet_s=3.0),
            Case("sync", "joined", quiet_s=3.0),
            Case("async", "joined", quiet_s=3.0),
        ]
    both = [Case(strategy, "joined") for strategy in STRATEGIES] + [
        Case(strategy, "run") for strategy in ("sync", "async")
    ]
    leaving = [Case(strategy, "joined", "dismissed") for strategy in ("sync", "easgd", "server")]
    stopped = [Case(strategy, "joined", "stopped") for strategy in ("sync", "dpsgd")]
    return [*both, Case("sync", "joined", quiet_s=EARLY_S), *stopped, *leaving]


def main(args: argparse.Namespace) -> None:
    folder = Path(tempfile.mkdtemp(prefix="taut-going-on-"))  # left behind where something went wrong
    chosen = [case for case in cases(args.quick) if args.only in str(case)]
    rows: list[Row] = []
    for number, case in enumerate(chosen):
        try:
            seen = one_case(folder / str(number), case)
        except (Misuse, SystemExit) as error:  # it hung, or somebody was given up who lives
            sys.stderr.write(f"{case}: {error}; see {folder}\n")
            rows.append(row(f"{case}: could not be measured", 1.0, "", at_most=0))
            continue
        sys.stderr.write(f"{case}: {seen}\n")
        rows += rows_of(case, seen)
    if all(one.ok for one in rows):
        shutil.rmtree(folder)
    report("going_on", rows, args)


if __name__ == "__main__":
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", default="", help="cases whose name contains this, such as 'sync, joined'")
    main(parser.parse_args())

"""How do many small workers do on this machine? One real run of 64, of which a tenth are killed in the middle.

A perceptron of 4,000 parameters whose steps sleep (``jobs/paced.py``), so that the cores are for messages alone; a
fiftieth of the weights is sent after each step. Reported: the time until all train, steps and updates per second before
the kill, the memory of a worker (of what several have, its share), the processor time of the workers and of the process
of ``taut run``, which is the supervisor; whether the run ends, and its replicas agree.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from processes import JOBS, TAUT
from report import Row, arguments, report, row
from taut.errors import Misuse
from taut.supervisor.storage.store_reader import StoredRun, find_run

LIMIT_S = 170.0  # for all of it
MB, TICKS = 1e6, os.sysconf("SC_CLK_TCK")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def private_nbytes(pid: int) -> int:
    """What this process has alone, and its share of what several have."""
    line = next(each for each in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() if each.startswith("Pss:"))
    return 1024 * int(line.split()[1])


def until(what: str, true: Callable[[], Any], by_s: float, process: subprocess.Popen[str]) -> float:
    """When it became true."""
    while not true():
        if process.poll() is not None or time.monotonic() > by_s:
            raise SystemExit(f"not in time, or the run ended: {what}")
        time.sleep(0.25)
    return time.monotonic()


def stored(runs: Path) -> StoredRun | None:
    try:
        return find_run(str(runs), "latest")
    except Misuse:  # nothing is recorded yet
        return None


def totals(runs: Path) -> tuple[int, int]:
    """Steps made, and updates included, of all workers so far."""
    run = stored(runs)
    rows = run.latest().values() if run is not None else ()
    return sum(each.steps for each in rows), sum(each.updates_included for each in rows)


def measured(args: argparse.Namespace, folder: Path) -> tuple[list[Row], subprocess.Popen[str]]:
    runs, began_s = folder / "runs", time.monotonic()
    by_s = began_s + LIMIT_S
    words = ["run", "--json", "--workers", str(args.workers), "--threads", "1", "--topology", args.topology]
    words += ["--codec", "tether:density=0.02"]
    job = [str(JOBS / "paced.py"), "--width", "32", "--step", str(args.step), "--steps", "3000"]
    process = subprocess.Popen(
        [str(TAUT), *words, "--runs-dir", str(runs), *job], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        return figures(args, runs, process, began_s, by_s), process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)


def figures(
    args: argparse.Namespace, runs: Path, process: subprocess.Popen[str], began_s: float, by_s: float
) -> list[Row]:
    def training() -> bool:
        run = stored(runs)
        return run is not None and sum(each.steps > 1 for each in run.latest().values()) == args.workers

    started_s = until("all workers train", training, by_s, process)
    time.sleep(args.seconds / 4)
    run = stored(runs)
    assert run is not None
    pids = [worker.pid for worker in run.workers]
    before, spent, of_run, at_s = totals(runs), [cpu_s(pid) for pid in pids], cpu_s(process.pid), time.monotonic()
    time.sleep(args.seconds)
    after, took_s = totals(runs), time.monotonic() - at_s
    used = sum(cpu_s(pid) for pid in pids) - sum(spent)
    supervisor = cpu_s(process.pid) - of_run
    memory = [private_nbytes(pid) for pid in pids]
    killed = pids[1::10][: args.workers // 10]
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    kill_s = time.monotonic()

    def noticed() -> bool:
        now = stored(runs)
        return now is not None and sum(worker.gone is not None for worker in now.workers) >= len(killed)

    noticed_s = until("the deaths are noticed", noticed, by_s, process)
    steps = totals(runs)[0]
    until("the others go on", lambda: totals(runs)[0] > steps + args.workers, by_s, process)
    return [
        row("from the command until all train", started_s - began_s, "s"),
        row("steps of all", (after[0] - before[0]) / took_s, "1/s"),
        row("steps of all, of what sleeping allows", (after[0] - before[0]) / took_s / (args.workers / args.step), ""),
        row("updates included by all", (after[1] - before[1]) / took_s, "1/s"),
        row("processor time of a worker", used / took_s / args.workers * 1e3, "ms/s"),
        row("processor time of the supervisor", supervisor / took_s * 1e3, "ms/s"),
        row("the supervisor's share of all processor time", supervisor / (used + supervisor), ""),
        row("memory of a worker, its share of what is shared included", statistics.mean(memory) / MB, "MB"),
        row(f"from killing {len(killed)} until the store says so", noticed_s - kill_s, "s"),
    ]


def ended(process: subprocess.Popen[str]) -> list[Row]:
    asked_s = time.monotonic()
    try:
        printed, _ = process.communicate(timeout=LIMIT_S)
    finally:
        with closing(process.stdout or open(os.devnull)):
            if process.poll() is None:
                process.kill()
    record = json.loads(printed)
    return [
        row("from asking the run to end until it has", time.monotonic() - asked_s, "s"),
        row("replicas identical at the end", float(bool(record["replicas_identical"])), "", at_least=1.0),
    ]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--topology", default="complete")
    parser.add_argument("--step", type=float, default=1.0, help="seconds that a step sleeps")
    parser.add_argument("--seconds", type=float, default=20.0, help="of the steady state")
    args = parser.parse_args()
    if args.quick:
        args.workers, args.seconds = 12, 5.0
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as folder:
        rows, process = measured(args, Path(folder))
        rows += ended(process)
    report("many", rows, args)


if __name__ == "__main__":
    main()

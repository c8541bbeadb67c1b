"""Starting the jobs that benchmarks measure: runs of ``taut``, plain processes, hosts of a network lab."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BENCH = Path(__file__).parent
JOBS = BENCH / "jobs"
TAUT = Path(sys.executable).parent / "taut"
LIMIT_S = 600.0  # for one run; a benchmark that hangs must say so
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
LAB = os.environ.get("NETLAB", "bench")  # two benchmarks can run side by side, in labs of their own


@dataclass(frozen=True)
class Made:
    """A run that was made: each process's record (see ``jobs/mnist.py``), and what ``taut`` said of it at the end."""

    folder: Path
    records: list[dict[str, Any]]
    outcome: dict[str, Any] = field(default_factory=dict)
    command_s: float = 0.0  # when the first command was given

    @property
    def samples_per_s(self) -> float:
        """Of all processes together, from the end of the first one's warm-up to the end of the last one's data."""
        span_s = max(r["ended_s"] for r in self.records) - min(r["begun_s"] for r in self.records)
        return float(sum(r["samples"] for r in self.records)) / span_s

    @property
    def cpu_s_per_step(self) -> float:
        """CPU time of all threads of a process per step: what is left of a comparison when others use the machine."""
        return float(sum(r["cpu_s"] for r in self.records)) / sum(r["steps"] for r in self.records)

    def share(self, *kinds: str) -> float:
        """The share of the workers' time, up to the end of the data, that went into these kinds of work."""
        given = [r["statistics"] for r in self.records]
        return float(sum(s[f"{kind}_s"] for s in given for kind in kinds)) / sum(s["wall_s"] for s in given)


def taut_run(
    job: str,
    args: Sequence[str],
    folder: Path,
    *,
    workers: int,
    options: Sequence[str] = (),
    limit_s: float = LIMIT_S,
) -> Made:
    """``taut run`` of a job that takes ``--out``, with one torch thread per worker."""
    out = fresh(folder)
    command = [str(TAUT), "run", "--workers", str(workers), "--threads", "1", "--json"]
    command += ["--runs-dir", str(out / "runs"), *options, str(JOBS / job), "--out", str(out), *args]
    printed = finished(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=out), limit_s)
    return Made(out, records(out, workers), json.loads(printed))


def plain_run(job: str, args: Sequence[str], folder: Path, *, processes: int) -> Made:
    """The same loop in so many processes without taut, each with its share of the data, starting together."""
    out = fresh(folder)
    command = [sys.executable, str(JOBS / job), "--plain", "--peers", str(processes), "--out", str(out), *args]
    started = [
        subprocess.Popen(
            [*command, "--rank", str(rank)], cwd=out, env=os.environ | ONE_THREAD, stdout=subprocess.PIPE, text=True
        )
        for rank in range(processes)
    ]
    for process in started:
        finished(process)
    return Made(out, records(out, processes))


def finished(process: subprocess.Popen[str], limit_s: float = LIMIT_S) -> str:
    """What the process printed; ends the benchmark if it failed or hung."""
    try:
        printed, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise SystemExit(f"no end after {limit_s:.0f} s: {process.args}") from None
    if process.returncode:
        raise SystemExit(f"exit code {process.returncode}: {process.args}")
    return printed or ""


def fresh(folder: Path) -> Path:
    """A new folder of that name in its parent, numbered, since runs are repeated."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=folder.name + "-", dir=folder.parent))


def records(out: Path, count: int) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in sorted(out.glob("*.json"))]
    if len(found) != count:
        raise SystemExit(f"{len(found)} of {count} processes left a record in {out}")
    return found


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Of pairs that were measured one after the other, so that what slows the machine slows both.

    >>> median_ratio([2.0, 9.0, 4.0], [1.0, 3.0, 4.0])
    2.0
    """
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


# ------------------------------------------------------------------------------------------------------- hosts


@contextlib.contextmanager
def hosts(netlab: Path, count: int, rate: str) -> Iterator[None]:
    """Hosts of the network lab, each on a cable of ``rate``; taken down whatever happens."""
    lab(netlab, "up", str(count), rate)
    try:
        yield
    finally:
        lab(netlab, "down")


def lab(netlab: Path, *words: str) -> None:
    subprocess.run([str(netlab), *words], check=True, env=os.environ | {"NETLAB": LAB})


def why_no_hosts(netlab: Path) -> str:
    """Why the network lab cannot be used here, or nothing."""
    if not netlab.exists():
        return f"no {netlab} (see --netlab)"
    return "it needs root" if os.geteuid() else ""


def hosts_run(
    netlab: Path,
    job: str,
    args: Sequence[str],
    folder: Path,
    *,
    workers: int,
    options: Sequence[str] = (),
    first: int = 1,
) -> Made:
    """A run over the lab: ``taut supervisor`` on host 1, one ``taut worker`` on every host from ``first`` on."""
    out, command_s = fresh(folder), time.monotonic()
    environment = os.environ | ONE_THREAD | {"NETLAB": LAB, "COLUMNS": "300"}
    address, runs = "10.77.0.1", out / "runs"
    command = ["supervisor", "--workers", str(workers), "--bind", address, "--port", "7700", "--json", "--name", "bench"]

    def on(host: int, *words: str) -> subprocess.Popen[str]:
        whole = [str(netlab), "exec", str(host), str(TAUT), *words]
        return subprocess.Popen(whole, stdout=subprocess.PIPE, text=True, cwd=out, env=environment)

    with contextlib.ExitStack() as stack:
        supervisor = on(1, *command, "--runs-dir", str(runs), *options)
        stack.callback(supervisor.kill)
        token = runs / "bench" / "token"
        deadline_s = time.monotonic() + 60
        while not token.exists():
            if supervisor.poll() is not None or time.monotonic() > deadline_s:
                raise SystemExit(f"the supervisor did not come up: {supervisor.args}")
            time.sleep(0.05)
        join = ["--join", f"{address}:7700", "--token-file", str(token)]
        started = [
            on(host, "worker", *join, "--bind", f"10.77.0.{host}", str(JOBS / job), "--out", str(out), *args)
            for host in range(first, first + workers)
        ]
        for process in started:
            stack.callback(process.kill)
        for process in started:
            finished(process)
        printed = finished(supervisor)
    return Made(out, records(out, workers), json.loads(printed), command_s)

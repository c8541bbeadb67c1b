"""What does it cost to watch a run: processor time, throughput, and memory of the page?

Where a run keeps all cores busy, the share of processor time that watching takes is what it costs in throughput. It can
be measured on a busy machine, where samples per second say little.

The same run of four workers is made with a dashboard that one client follows, and without, in turn. The page is fed with
points by a source that is played, and the heap of a real Chromium is looked at after a collection (`--page`).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from processes import LIMIT_S, ONE_THREAD, TAUT
from report import Row, arguments, report, row

sys.path.append(str(Path(__file__).parents[1] / "tests" / "dashboard"))

WORKERS, PORT = 4, 8799
DIGITS = Path(__file__).parents[1] / "examples" / "digits.py"
MIB = 2**20
PAGE_S = 3600.0  # for the points, on a busy machine


@contextmanager
def client(watched: bool) -> Iterator[None]:
    """Follow the stream of the dashboard in a thread, as a page does, until the run is over."""
    if not watched:
        yield
        return
    over = threading.Event()

    def follow() -> None:
        while not over.wait(0.2):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/api/stream", timeout=LIMIT_S) as stream:
                    for _ in stream:
                        pass
            except OSError:
                continue

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def trained(epochs: int, watched: bool) -> tuple[float, float, float]:
    """Return samples per second of the run, the supervisor's processor time, and that of all its processes."""
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as folder, client(watched):
        command = [str(TAUT), "run", "--workers", str(WORKERS), "--json", "--runs-dir", folder]
        command += ["--dashboard", str(PORT)] if watched else []
        environment = {**os.environ, **ONE_THREAD}
        run = subprocess.Popen(
            [*command, str(DIGITS), "--epochs", str(epochs)], env=environment, stdout=subprocess.PIPE, text=True
        )
        supervisor, spent_s = psutil.Process(run.pid), {}
        told: list[str] = []
        reader = threading.Thread(target=lambda: told.append(run.stdout.read() if run.stdout else ""))
        reader.start()
        while run.poll() is None:
            try:
                for process in (supervisor, *supervisor.children(recursive=True)):
                    times = process.cpu_times()
                    spent_s[process.pid] = times.user + times.system
                run.wait(0.1)
            except (subprocess.TimeoutExpired, psutil.Error):
                continue
        reader.join()
        if run.returncode:
            raise SystemExit(f"the run failed with {run.returncode}")
        outcome = json.loads(told[0])
    return outcome["samples_per_s"], spent_s[run.pid], sum(spent_s.values())


def page_growth(points: int) -> float | None:
    """Return how many MiB the heap of the page grows from 600 points to ``points``; None without Chromium."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        return None
    from browser import Browser
    from played import Played, row, served, until, view

    rows = [row(rank, samples=0, wall_s=0.0) for rank in range(WORKERS)]
    source = Played(view(*rows))
    look = source.look

    def next_look() -> object:  # each look is a second later
        now = source.view.wall_s + 1.0
        later = [row(rank, samples=int(100 * now), wall_s=now, compute_s=now, loss=1 / now) for rank in range(WORKERS)]
        source.view = view(*later, wall_s=now)
        return look()

    source.look = next_look  # type: ignore[method-assign,assignment]
    with tempfile.TemporaryDirectory() as folder, Browser(program, Path(folder) / "profile") as browser:
        if not browser.answers():
            return None
        with served(source, Path(folder), every_s=0.001) as client:
            browser.patience_s = LIMIT_S
            browser.open(f"http://127.0.0.1:{client.port}/")

            def heap(reached: int) -> float:
                until(lambda: source.view.wall_s > reached, f"{reached} points", PAGE_S)
                browser._call("HeapProfiler.collectGarbage")
                return float(browser._call("Runtime.getHeapUsage")["usedSize"]) / MIB

            first = heap(600)  # the curves are full: as many points as there will ever be
            return heap(points) - first


def measure(repetitions: int, epochs: int) -> list[Row]:
    rates: dict[bool, list[float]] = {True: [], False: []}
    spent_s: dict[bool, list[float]] = {True: [], False: []}
    whole_s: list[float] = []
    for _ in range(repetitions):
        for watched in (False, True):
            rate, spent, whole = trained(epochs, watched)
            rates[watched].append(rate)
            spent_s[watched].append(spent)
            whole_s.append(whole)
    more_s = statistics.median(spent_s[True]) - statistics.median(spent_s[False])
    cost = 100 * more_s / statistics.median(whole_s)
    rows = [
        row("throughput watched / unwatched", statistics.median(rates[True]) / statistics.median(rates[False]), "x"),
        row("processor time of watching, of all that the run takes", cost, "%", at_most=1.0),
        row("processor time of a run: supervisor and workers", statistics.median(whole_s), "s"),
    ]
    rows.append(load())
    return rows


def page(points: int) -> list[Row]:
    growth = page_growth(points)
    if growth is None:
        raise SystemExit("error: no chromium here; try: apt-get install chromium")
    return [row(f"page memory growth over {points} points", growth, "MiB", at_most=50.0), load()]


def load() -> Row:
    return row("load of the machine meanwhile, processes that want to run", os.getloadavg()[2], "")


def main(args: argparse.Namespace) -> None:
    if args.page:
        report("watch_page", page(2000 if args.quick else args.points), args)
    else:
        report("watch", measure(1, 60) if args.quick else measure(3, 60), args)


if __name__ == "__main__":
    parser = arguments(__doc__ or "")
    parser.add_argument("--page", action="store_true", help="the page's memory alone")
    parser.add_argument("--points", type=int, default=100_000, help="that the page is fed with")
    main(parser.parse_args())

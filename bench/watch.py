"""What does it cost to watch a run? Its throughput; and of the page: memory, and how smooth it is.

Throughput: one run of four workers, whose dashboard is opened, followed by a client in a process of its own, and closed
again, in blocks of a few seconds, in the order off on on off, off on on off ... Steps are counted by the workers
themselves, to the step. Each two neighbouring blocks are a pair, so what the machine does meanwhile meets both; the cost
is the mean of the logarithms of their ratios, with Student's interval of 95%. Steps are divided by seconds, and by the
processor seconds of supervisor and workers: these keep all cores busy, so both are the throughput, but on a machine whose
cores others use, too, the first is mostly noise. The bar is on the upper end of the second.

    off  the supervisor and its store, as in any run      on  and the dashboard, with one client

`--page`: a source that is played feeds a real Chromium with points. The heap is looked at after a collection, and for a
while the pointer moves over the curves and zooms, while the page counts the time between its frames.
"""

from __future__ import annotations

import argparse
import json
import math
import mmap
import os
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from processes import JOBS, LIMIT_S
from report import Row, arguments, report, row

sys.path.append(str(Path(__file__).parents[1] / "tests" / "dashboard"))

WORKERS = 4
SETTLE_S, BLOCK_S, WARM_S = 0.5, 2.5, 8.0
MIB = 2**20
PAGE_S = 3600.0  # for the points, on a busy machine
FRAMES_S = 20.0  # that frames are looked at
STUDENT = {4: 2.776, 9: 2.262, 19: 2.093, 39: 2.023}  # 97.5%, by degrees of freedom
CLIENT = "import sys, urllib.request\nfor _ in urllib.request.urlopen(sys.argv[1], timeout=60): pass\n"


def interval(values: list[float]) -> tuple[float, float]:
    """Return the mean, and how far from it Student's interval of 95% reaches.

    >>> interval([1.0, 3.0, 2.0, 2.0, 2.0])
    (2.0, 0.8778...)
    """
    student = STUDENT[max(free for free in STUDENT if free <= len(values) - 1)]
    return statistics.mean(values), student * statistics.stdev(values) / math.sqrt(len(values))


def ratios(pairs: int) -> list[tuple[float, float]]:
    """Return, for pairs of blocks, the logarithms of steps per second, and of steps per second of processor time, with
    the dashboard over those without."""
    from taut.cli.output.console import notes
    from taut.dashboard.secret import new_secret
    from taut.dashboard.server import Dashboard, listen
    from taut.dashboard.sources import SupervisorSource
    from taut.testing.cluster import LocalCluster

    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    found: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as name:
        folder = Path(name)
        (folder / "counts").write_bytes(bytes(8 * WORKERS))
        with (
            open(folder / "counts", "r+b") as file,
            mmap.mmap(file.fileno(), 0) as counts,
            LocalCluster(JOBS / "counted.py", WORKERS, folder / "run", args=[str(folder / "counts")]) as cluster,
        ):
            new_secret(cluster.run_dir)

            def steps() -> int:
                return sum(struct.unpack(f"{WORKERS}q", counts[:]))

            processes = [psutil.Process()]  # the supervisor, and the dashboard, are in this one

            def spent_s() -> float:
                return sum(sum(one.cpu_times()[:2]) for one in processes)

            def rate() -> tuple[float, float]:
                time.sleep(SETTLE_S)
                first, began_s, before_s = steps(), time.perf_counter(), spent_s()
                time.sleep(BLOCK_S)
                made = steps() - first
                return made / (time.perf_counter() - began_s), made / (spent_s() - before_s)

            def watched() -> tuple[float, float]:
                source = SupervisorSource(cluster.supervisor, secret_for_all=False)
                with Dashboard(listen("127.0.0.1", 0), source, cluster.run_dir) as dashboard:
                    client = subprocess.Popen([sys.executable, "-S", "-c", CLIENT, f"{dashboard.url}api/stream"])
                    try:
                        return rate()
                    finally:
                        client.kill()
                        client.wait()

            view = cluster.until(lambda view: len(view.workers) == WORKERS and view.train_s > WARM_S, "the run")
            processes += [psutil.Process(worker.pid) for worker in view.workers]
            for pair in range(pairs):
                blocks: list[Callable[[], tuple[float, float]]] = [rate, watched] if pair % 2 == 0 else [watched, rate]
                both = {block: block() for block in blocks}
                by_wall, by_processor = (math.log(on / off) for on, off in zip(both[watched], both[rate], strict=True))
                found.append((by_wall, by_processor))
                told = f"steps/s {both[rate][0]:,.0f}, watched {both[watched][0]:,.0f}"
                notes().print(f"pair {pair + 1}: {told}; by processor time {100 * by_processor:+.2f}%", style="dim")
            cluster.supervisor.drain("enough")
            cluster.outcome()
    return found


def played_run(workers: int) -> tuple[Any, Callable[[], float]]:
    """Return a source whose every look is a second later, with new figures of each worker; and its time."""
    from played import Played, row, view

    def look_at(now: float) -> list[Any]:
        return [
            row(
                rank, samples=int((100 + rank) * now), wall_s=now, compute_s=0.8 * now, wait_s=0.1 * now, steps=int(now),
                bytes_sent=int(1000 * now), loss=(1 + 0.01 * rank) / (1 + now) + 0.02 * math.sin(now + rank),
                staleness=4 + math.sin(now / 9 + rank), late=(int(now), int(2 * now), int(now)),
            )
            for rank in range(workers)
        ]  # fmt: skip

    source = Played(view(*look_at(0.0)))
    look = source.look

    def next_look() -> object:
        now = source.view.wall_s + 1.0
        source.view = view(*look_at(now), wall_s=now)
        return look()

    source.look = next_look  # type: ignore[method-assign,assignment]
    return source, lambda: source.view.wall_s


COUNT_FRAMES = """
window.frames_ms = []; window.tasks_ms = [];
const note = (list) => window.tasks_ms.push(...list.getEntries().map((one) => one.duration));
new PerformanceObserver(note).observe({entryTypes: ["longtask"]});
let last = performance.now();
const frame = (now) => { window.frames_ms.push(now - last); last = now; requestAnimationFrame(frame); };
requestAnimationFrame(frame);
"""


def page_figures(points: int, workers: int, seconds: float) -> dict[str, float] | None:
    """Return how the page fares with ``points`` of so many workers; None without Chromium."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        return None
    from browser import Browser
    from played import served, until

    source, now = played_run(workers)
    with tempfile.TemporaryDirectory() as folder, Browser(program, Path(folder) / "profile") as browser:
        if not browser.answers():
            return None
        with served(source, Path(folder), every_s=0.001) as client:
            browser.patience_s = LIMIT_S
            browser._call(
                "Emulation.setDeviceMetricsOverride", width=1280, height=1400, deviceScaleFactor=1, mobile=False
            )
            browser.open(f"http://127.0.0.1:{client.port}/")

            def heap(reached: int) -> float:
                until(lambda: now() > reached, f"{reached} points", PAGE_S)
                browser._call("HeapProfiler.collectGarbage")
                return float(browser._call("Runtime.getHeapUsage")["usedSize"]) / MIB

            first = heap(600)  # the curves are full: as many points as there will ever be
            grown = heap(points) - first
        with served(source, Path(folder), every_s=1.0, history=full_history(source)) as client:  # as it is in a run
            browser.open(f"http://127.0.0.1:{client.port}/")
            browser.until(f"document.querySelectorAll('#workers tr').length == {workers}")
            browser.until("document.querySelector('#losses canvas') !== null")
            browser.value(COUNT_FRAMES)
            use(browser, seconds)
            frames, tasks = (sorted(browser.value(f"window.{name}")) for name in ("frames_ms", "tasks_ms"))
    return {
        "memory": grown,
        "frames": len(frames) / seconds,
        "late": 100 * sum(one for one in frames if one > 100.0) / sum(frames),
        "middle": statistics.median(frames),
        "most": frames[int(0.99 * len(frames))],
        "worst": frames[-1],
        "task": tasks[-1] if tasks else 0.0,
    }


def full_history(source: Any) -> Any:
    """Return curves with as many points as there can be, a second apart."""
    from taut.dashboard.history import MOST_POINTS, History

    history = History()
    while len(history.points) < MOST_POINTS - 60:
        history = history.grown(source.look().mark)
    return history


def use(browser: Any, seconds: float) -> None:
    """Move over the curves, and zoom in and out now and then, as a person does."""
    at = json.loads(browser.value("JSON.stringify(document.querySelector('#losses .u-over').getBoundingClientRect())"))
    ended, turn = time.monotonic() + seconds, 0
    mouse = lambda kind, x, **more: browser._call(  # noqa: E731
        "Input.dispatchMouseEvent", type=kind, x=at["x"] + x * at["width"], y=at["y"] + at["height"] / 2, **more
    )
    while time.monotonic() < ended:
        turn += 1
        mouse("mouseMoved", 0.1 + 0.8 * (turn % 50) / 50)
        if turn % 150 == 100:
            mouse("mousePressed", 0.3, button="left", clickCount=1)
            mouse("mouseMoved", 0.6, button="left", buttons=1)
            mouse("mouseReleased", 0.6, button="left", clickCount=1)
        if turn % 150 == 0:
            browser.value("document.querySelector('#whole').click()")
        time.sleep(0.02)


def share_lost(logarithm: float) -> float:
    """Return the share of throughput that is lost, in percent.

    >>> round(share_lost(math.log(0.99)), 6)
    1.0
    """
    return 100 * (1 - math.exp(logarithm))


def measure(pairs: int) -> list[Row]:
    rows = []
    by_wall, by_processor = zip(*ratios(pairs), strict=True)
    for name, found in (("by processor time", by_processor), ("by wall time", by_wall)):
        mean, reach = interval(list(found))
        bar = {"at_most": 1.0} if found is by_processor else {}
        rows += [
            row(f"throughput that watching takes, {name}", share_lost(mean), "%"),
            row(f"{name}: lower end of its interval of 95%", share_lost(mean + reach), "%"),
            row(f"{name}: upper end", share_lost(mean - reach), "%", **bar),
        ]
    return [*rows, row("pairs of blocks", pairs, ""), load()]


def page(points: int, workers: int, seconds: float) -> list[Row]:
    found = page_figures(points, workers, seconds)
    if found is None:
        raise SystemExit("error: no chromium here; try: apt-get install chromium")
    who = f"{workers} workers"
    return [
        row(f"page memory growth over {points} points, {who}", found["memory"], "MiB", at_most=50.0),
        row(f"frames per second while it is used, {who}", found["frames"], "1/s", at_least=30.0),
        row("time between two frames, median", found["middle"], "ms"),
        row("of 100 frames, the second longest", found["most"], "ms", at_most=100.0),
        row("the longest", found["worst"], "ms"),
        row("longest task of the page's script", found["task"], "ms"),
        load(),
    ]


def load() -> Row:
    return row("load of the machine meanwhile, processes that want to run", os.getloadavg()[2], "")


def main(args: argparse.Namespace) -> None:
    if args.page:
        name = "watch_page" if args.workers == WORKERS else f"watch_page_{args.workers}"
        seconds = 5.0 if args.quick else FRAMES_S
        report(name, page(2000 if args.quick else args.points, args.workers, seconds), args)
    else:
        report("watch", measure(5 if args.quick else args.pairs), args)


if __name__ == "__main__":
    parser = arguments(__doc__ or "")
    parser.add_argument("--pairs", type=int, default=20, help="of blocks, with and without the dashboard")
    parser.add_argument("--page", action="store_true", help="the page's memory and frames, in Chromium")
    parser.add_argument("--points", type=int, default=100_000, help="that the page is fed with")
    parser.add_argument("--workers", type=int, default=WORKERS, help="that the page shows")
    main(parser.parse_args())

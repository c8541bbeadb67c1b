"""What does each codec cost in quality, and what does it save in bytes?

The MNIST MLP (784-512-512-10, SGD 0.1, momentum 0.9, two passes, batches of 64) and a character transformer on tiny
Shakespeare (AdamW, 400 steps of 4 x 16 windows), four workers, three seeds, every codec. Runs are made by the simulator:
real training with the runtime's own code, in virtual time, with exact bytes; one process per run. Learning rates and
schedules are the same for all. Quality is of the model that comes out; bytes are what all workers handed to the
transport, the first weights included; the ratio is to dense float32 updates to every peer at every step.

    python bench/compression.py [--task mnist] [--only topk,dgc] [--seeds 1] [--jobs 16] [--resume] [--quick] [--json]

Every finished run is a line in ``FOLDER/compression.runs.jsonl``: after Ctrl-C or a cut, ``--resume`` goes on from there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NoReturn

from compression_cases import TASKS, Case, chosen, refused, scenario
from compression_page import finish
from processes import JOBS, ONE_THREAD
from report import RESULTS, arguments
from taut.codecs import REGISTRY
from taut.specs import did_you_mean

SHARED = Path(__file__).resolve().parents[2] / "shared"
FILES = {"mnist": Path("mnist"), "text": Path("tinyshakespeare", "input.txt")}
RUNS = "compression.runs.jsonl"
QUICK_SAMPLES = 6_000
LIMIT_S = 1800.0  # for one run; a benchmark that hangs must say so
DIVERGED = ("NonFinite", "NaN or infinite")

Order = dict[str, Any]  # what to run: task, strategy, codec, seed, samples, data
Record = dict[str, Any]


# --------------------------------------------------------------------------------------------------- one run


def made(order: Order) -> Record:
    """One run, in this process. ``score`` is None where it diverged; ``error``: why nothing can be said of it."""
    from taut.errors import TautError
    from taut.simulator.script.run import simulate_script

    case = Case(order["task"], order["strategy"], order["codec"])
    given = scenario(case, order["seed"], str(JOBS / "compression.py"), order["data"], order["samples"])
    record: Record = {key: value for key, value in order.items() if key != "data"}
    try:
        done = simulate_script(given)
    except TautError as error:
        return record | {"score": None, "error": _unless_diverged(f"{type(error).__name__}: {error}")}
    workers = done.workers.values()
    score = done.validation.chosen if done.validation and not done.error else None
    if score is None:
        record["error"] = _unless_diverged(done.error or "no validation score")
    return record | {
        "score": score if score is not None and math.isfinite(score) else None,
        "bytes_sent": sum(one.bytes_sent for one in workers),
        "bytes_dense": sum(one.bytes_dense for one in workers) * len(workers) // 2,  # to every peer, not a ring
        "steps": sum(one.steps for one in workers),
        "staleness": max(one.staleness for one in workers),
        "identical": done.identical,
    }


def _unless_diverged(error: str) -> str:
    """Numbers that are not finite are a result."""
    return "" if any(mark in error for mark in DIVERGED) else error


def one_run(text: str) -> NoReturn:
    """What a process of its own does: ``--one ORDER``."""
    import numpy as np

    began_s = time.process_time()
    with np.errstate(all="ignore"):
        record = made(json.loads(text))
    print(json.dumps(record | {"cpu_s": round(time.process_time() - began_s, 1)}))
    sys.exit(0)


# -------------------------------------------------------------------------------------------------- all runs


class Crew:
    """Runs orders in processes, ``jobs`` at a time, and keeps what comes out in a file."""

    def __init__(self, path: Path, jobs: int, until_s: float) -> None:
        self.path, self.jobs, self.until_s = path, jobs, until_s
        self._live: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def kept(self) -> dict[tuple[Any, ...], Record]:
        """The runs made so far. A line that was cut off is none."""
        found: dict[tuple[Any, ...], Record] = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                continue
            found[key(record)] = record
        return found

    def run(self, orders: Sequence[Order]) -> Generator[Record]:
        """The records, as they come; of those that failed too, which are not kept. Fewer, if time runs out."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(self.jobs) as pool:
            futures: list[Future[Record | None]] = [pool.submit(self._one, order) for order in orders]
            try:
                for future in as_completed(futures):
                    record = future.result()
                    if record is None:
                        continue
                    if not record.get("error"):
                        with self.path.open("a") as file:
                            file.write(json.dumps(record) + "\n")
                    yield record
            except BaseException:  # Ctrl-C above all: nobody is left behind
                self._stopped = True
                pool.shutdown(wait=False, cancel_futures=True)
                for process in tuple(self._live):
                    process.kill()
                raise

    def _one(self, order: Order) -> Record | None:
        if self._stopped or time.monotonic() > self.until_s:
            return None
        command = [sys.executable, __file__, "--one", json.dumps(order)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | ONE_THREAD
        )
        self._live.add(process)
        if self._stopped:
            process.kill()
        try:
            printed, complaints = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            return {**order, "error": f"no end after {LIMIT_S:g} s"}
        finally:
            self._live.discard(process)
        if process.returncode:
            last = (complaints.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
            return {**order, "error": last}
        record: Record = json.loads(printed.strip().splitlines()[-1])
        return record


def key(record: Record) -> tuple[Any, ...]:
    return tuple(record[name] for name in ("task", "strategy", "codec", "seed", "samples"))


def told(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def described(record: Record) -> str:
    name = f"{record['task']}, {record['strategy']}, {record['codec']}, seed {record['seed']}"
    if record.get("error"):
        return f"{name}: FAILED: {record['error']}"
    if record["score"] is None:
        return f"{name}: diverged"
    ratio = record["bytes_dense"] / record["bytes_sent"]
    return f"{name}: {record['score']:.4g}, {ratio:.4g}x, staleness {record['staleness']:.2g}, {record['cpu_s']:.0f} s"


# ------------------------------------------------------------------------------------------------------ main


def options() -> argparse.Namespace:
    parser = arguments((__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=SHARED / "data", help="holds mnist/ and tinyshakespeare/input.txt")
    parser.add_argument("--task", choices=TASKS, help="this one alone")
    parser.add_argument("--only", help="these codecs: names with commas between them")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="so many runs side by side")
    parser.add_argument("--folder", type=Path, default=RESULTS, help=f"for {RUNS} and all that is written")
    parser.add_argument("--resume", action="store_true", help="go on from the runs that are kept there")
    parser.add_argument("--stop-after", type=float, default=math.inf, metavar="S", help="begin no run after S seconds")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.only = [name.strip() for name in args.only.split(",")] if args.only else []
    for name in args.only:
        if name not in REGISTRY:
            parser.error(f"--only {name}: expected some of {', '.join(REGISTRY)}; {did_you_mean(name, REGISTRY)}")
    args.tasks = [args.task] if args.task else ["mnist"] if args.quick else list(TASKS)
    for task in args.tasks if not args.one else ():
        if not (args.data / FILES[task]).exists():
            parser.error(f"no {args.data / FILES[task]}: --data must name a folder with {FILES[task]}")
    if args.quick and args.task == "text":
        parser.error("--quick --task text: expected mnist; a first look is at MNIST alone")
    if min(args.seeds, args.jobs) < 1:
        parser.error(f"--seeds {args.seeds} --jobs {args.jobs}: expected at least 1")
    return args


def study(args: argparse.Namespace, cases: Sequence[Case], path: Path) -> tuple[list[Record], list[str]]:
    """The records of all cases, and what went wrong or was left undone."""
    began_s = time.monotonic()
    crew = Crew(path, args.jobs, began_s + args.stop_after)
    if not args.resume:
        path.unlink(missing_ok=True)
    kept = crew.kept()
    samples = QUICK_SAMPLES if args.quick else None
    orders: list[Order] = [  # seeds last: what is cut off has something of everything
        {"task": case.task, "strategy": case.strategy, "codec": case.codec, "seed": seed, "samples": samples}
        for seed in range(1 if args.quick else args.seeds)
        for case in cases
    ]
    found = [kept[key(order)] for order in orders if key(order) in kept]
    left = [
        order | {"data": str((args.data / FILES[order["task"]]).resolve())} for order in orders if key(order) not in kept
    ]
    told(f"{len(orders)} runs, {len(found)} of them kept from before; {args.jobs} side by side")
    failures = []
    with contextlib.closing(crew.run(left)) as records:
        for number, record in enumerate(records, 1):
            told(f"[{number}/{len(left)}, {time.monotonic() - began_s:.0f} s] {described(record)}")
            if record.get("error"):
                failures.append(described(record))
            else:
                found.append(record)
    undone = len(orders) - len(found) - len(failures)
    if undone:
        failures.append(f"{undone} runs were not made in {args.stop_after:g} s: go on with --resume")
    return found, failures


def main() -> None:
    args = options()
    if args.one:
        one_run(args.one)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cases = chosen(args.tasks, args.only, args.quick)
    left_out = dict(refused(cases))
    for case, why in left_out.items():
        told(f"left out: {case}: {why}")
    cases = [case for case in cases if case not in left_out]
    try:
        with tempfile.TemporaryDirectory(prefix="taut-bench-") as scratch:
            found, failures = study(args, cases, (Path(scratch) if args.quick else args.folder) / RUNS)
    except KeyboardInterrupt:
        told("stopped" if args.quick else f"stopped: what is done is in {args.folder / RUNS}; go on with --resume")
        sys.exit(130)
    finish(found, [f"{case}: {why}" for case, why in left_out.items()], failures, args)


if __name__ == "__main__":
    main()

"""Does training on a GPU stay at full speed? A GPT of 163M parameters (AdamW, bf16 autocast, batch 8 x 512) on one card.

Runs are compared with as many plain processes of the same loop, on the same card. Speeds are of steps after a warm-up
that all processes end together. The parts of a step (encode, decode, copies) are from runs of their own, in which the
device is idle before and after each part (``jobs/gpt.py``); a part is the median of the steps, of the slowest worker. Not
in them: what the transport does with the payload in host memory.

    PYTHONPATH=src python3 bench/gpu_training.py [--quick] [--only sync] [--json]

Needs a GPU. ``--size tiny --cpu`` is a rehearsal without one: no bars, nothing is written.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from report import Row, arguments, report, row

JOBS = Path(__file__).parent / "jobs"
LIMIT_S = 150.0  # for one run
INT8, TOPK = "int8", "topk:density=0.001"

Record = dict[str, Any]


def started(command: Sequence[str], folder: str, threads: int) -> subprocess.Popen[bytes]:
    with open(Path(folder) / "log", "ab") as log:
        environ = os.environ | {"OMP_NUM_THREADS": str(threads)}
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environ)


def run(args: argparse.Namespace, peers: int, options: Sequence[str] | None, *more: str) -> list[Record]:
    """The records of ``peers`` workers of a run with these options; None: of plain processes."""
    threads = max(1, (os.cpu_count() or 1) // peers)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        job = [str(JOBS / "gpt.py"), "--out", folder, "--peers", str(peers), "--size", args.size]
        job += ["--steps", str(args.steps), *more]
        if options is None:
            commands = [[sys.executable, *job, "--plain", "--rank", str(rank)] for rank in range(peers)]
        else:
            head = [sys.executable, "-m", "taut", "run", "--workers", str(peers), "--threads", str(threads)]
            commands = [[*head, "--devices", "cpu" if args.cpu else "0", *options, *job]]
        running = [started(command, folder, threads) for command in commands]
        until_s = time.monotonic() + LIMIT_S
        try:
            while len(list(Path(folder).glob("done-*"))) < peers:
                if time.monotonic() > until_s or any(each.poll() for each in running):
                    raise SystemExit(f"{commands[0]} failed:\n{(Path(folder) / 'log').read_text()[-3000:]}")
                time.sleep(0.01)
        finally:
            for each in running:
                end(each)
        return [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(peers)]


def end(process: subprocess.Popen[bytes]) -> None:
    """End a run of whose workers nothing more is needed: they have gone already."""
    try:
        process.wait(5.0)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            process.wait(10.0)
        except subprocess.TimeoutExpired:
            process.kill()


def speed(records: Sequence[Record]) -> float:
    return float(sum(record["steps_per_s"] for record in records))


def parts(records: Sequence[Record], *names: str) -> float:
    return float(max(sum(record["parts"].get(name, 0.0) for name in names) for record in records))


class Cases:
    """The measurements, each by its name."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.plain = cache(lambda peers: run(args, peers, None))

    def alone(self) -> Iterator[Row]:
        plain, joined = self.plain(1), run(self.args, 1, ["--strategy", "async"])
        slower = 100.0 * (speed(plain) / speed(joined) - 1.0)
        more = (joined[0]["allocated"] - plain[0]["allocated"]) / (4.0 * plain[0]["parameters"])
        yield row("plain loop", speed(plain), "steps/s")
        yield row("one worker", speed(joined), "steps/s")
        yield row("one worker, slower than the plain loop", slower, "%", at_most=2.0)
        yield row("device memory of the tether", more, "copies of the weights", at_most=1.1)

    def four(self) -> Iterator[Row]:
        plain, joined = speed(self.plain(4)), speed(run(self.args, 4, ["--strategy", "async"]))
        yield row("four plain processes", plain, "steps/s")
        yield row("four async workers", joined, "steps/s")
        yield row("four async workers, share of plain processes", 100.0 * joined / plain, "%", at_least=92.0)

    def tether(self) -> Iterator[Row]:
        timed = run(self.args, 2, ["--strategy", "async"], "--timed")
        step_ms = 2e3 / speed(self.plain(2))
        for part in ("encode", "decode"):
            share = 100.0 * parts(timed, part) / step_ms
            yield row(f"tether, two workers: {part}", share, "% of a step", at_most=3.0)

    def sync(self) -> Iterator[Row]:
        for codec in (INT8, TOPK):
            options = ["--strategy", "sync", "--codec", codec]
            timed = run(self.args, 2, options, "--timed")
            for part in ("encode", "decode", "copies"):
                yield row(f"sync, {codec}: {part}", parts(timed, part), "ms a step")
            together = parts(timed, "encode", "decode", "copies")
            yield row(f"sync, {codec}: all three", together, "ms a step", at_most=15.0)
            yield row(f"sync, {codec}: two workers", speed(run(self.args, 2, options)), "steps/s")

    def nccl(self) -> Iterator[Row]:
        """NCCL takes one worker on a card; on the processor gloo takes its place."""
        plain = speed(self.plain(1))
        alone = speed(run(self.args, 1, ["--strategy", f"sync:schedule={'gloo' if self.args.cpu else 'nccl'}"]))
        yield row("sync:schedule=nccl, one worker", alone, "steps/s")
        yield row("sync:schedule=nccl, slower than the plain loop", 100.0 * (plain / alone - 1.0), "%")

    def diloco(self) -> Iterator[Row]:
        alone = speed(run(self.args, 2, ["--strategy", "independent"]))
        yield row("two workers without communication", alone, "steps/s")
        for given, bar in (("diloco:every=50", 3.0), ("diloco:every=50,fragments=5,overlap=8", None)):
            slower = 100.0 * (alone / speed(run(self.args, 2, ["--strategy", given])) - 1.0)
            yield row(f"{given}, slower than that", slower, "%", at_most=bar)

    def simulated(self) -> Iterator[Row]:
        size = "tiny" if self.args.size == "tiny" else "10M"
        for strategy, workers, steps, bar in (("async", 8, 250, 40.0), ("sync", 2, 40, None)):
            command = [sys.executable, str(JOBS / "gpt_simulated.py"), size, strategy, str(workers), str(steps)]
            printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S).stdout
            told = json.loads(printed.splitlines()[-1])
            name = f"simulation of {size} parameters, {strategy}, {workers} workers x {steps} steps"
            yield row(name, told["took_s"], "s", at_most=bar)
            share = 100.0 * told["observing_s"] / told["took_s"]
            yield row(f"{name}: observing", share, "%", at_most=10.0)


CASES: dict[str, Callable[[Cases], Iterator[Row]]] = {
    name: getattr(Cases, name) for name in ("alone", "four", "tether", "sync", "nccl", "diloco", "simulated")
}


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", action="append", choices=CASES, help="these alone")
    parser.add_argument("--size", choices=("163M", "10M", "tiny"), default="163M")
    parser.add_argument("--steps", type=int, default=0, help="that are measured; default: 100, with --quick 40")
    parser.add_argument("--cpu", action="store_true", help="rehearse on the processor; no bars")
    args = parser.parse_args()
    args.steps = args.steps or (40 if args.quick else 100)
    if not (args.cpu or torch.cuda.is_available()):
        print("error: bench/gpu_training.py needs a GPU that torch can use (torch.cuda.is_available())", file=sys.stderr)
        sys.exit(2)
    cases, rows = Cases(args), list[Row]()
    for name in args.only or CASES:
        try:
            for found in CASES[name](cases):
                rows.append(found)
                print(f"{found.name}: {found.value:.4g} {found.unit} {found.bar}", file=sys.stderr, flush=True)
        except (SystemExit, subprocess.SubprocessError) as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            rows.append(Row(f"{name}: failed", 0.0, "", "to end", False))
    if args.cpu:
        rows = [Row(one.name, one.value, one.unit) for one in rows]
        args.quick = True
    report("gpu_training", rows, args)


if __name__ == "__main__":
    main()

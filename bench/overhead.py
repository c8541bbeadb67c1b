"""What does taut cost a worker that trains alone? A script without a launcher, and the one worker of ``taut run``.

Two copies of a model in one process, one driven by a plain loop and one by ``taut.join``, in turn in blocks of a few
steps; the ratio of neighbouring blocks, median. The models make steps of about 3 ms and 38 ms on a core of a quiet
machine. The processor time of all threads counts, which others on the machine change little; wall time stands beside it.
The plain blocks of ``taut run --workers 1`` run in the worker's process, too, between its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Generator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

import taut
from processes import LIMIT_S, TAUT, median_ratio
from report import Row, arguments, report, row

SAMPLES, BATCH = 8192, 64
WIDTHS = {"3 ms": 512, "38 ms": 2560}  # 0.67 and 8.6 million parameters
BLOCK_S = 0.15
BARS = {"join": 1.005, "run": 1.01}
NAMES = {"join": "taut.join without a launcher", "run": "taut run --workers 1"}


def network(width: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(SAMPLES, 784, generator=generator), torch.randint(10, (SAMPLES,), generator=generator)


def plain_loop(width: int) -> Generator[None, None, None]:
    """One step at each call of next."""
    x, y = data()
    model, optimizer = network(width)
    while True:
        for indices in torch.randperm(SAMPLES).split(BATCH):
            loss = F.cross_entropy(model(x[indices]), y[indices])
            loss.item()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            yield


def joined_loop(width: int) -> Generator[None, None, None]:
    x, y = data()
    model, optimizer = network(width)
    with taut.join(model, optimizer) as worker:
        for inputs, targets in worker.batches((x, y), batch_size=BATCH, epochs=1_000_000):
            worker.step(F.cross_entropy(model(inputs), targets))
            yield


def timed(loop: Generator[None, None, None], steps: int) -> tuple[float, float]:
    """Seconds per step over a block: of processor time, of all threads, and of wall time."""
    begun_s, cpu_s = time.perf_counter(), time.process_time()
    for _ in range(steps):
        next(loop)
    return (time.process_time() - cpu_s) / steps, (time.perf_counter() - begun_s) / steps


def in_turn(width: int, blocks: int) -> dict[str, list[tuple[float, float]]]:
    """Blocks of both loops in turn, in this process."""
    torch.set_num_threads(1)
    loops = {"plain": plain_loop(width), "taut": joined_loop(width)}
    for loop in loops.values():
        timed(loop, 3)
    steps = max(4, 8 * round(BLOCK_S / timed(loops["plain"], 4)[0] / 8))  # a worker alone exchanges every 8 steps
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in loops}
    for block in range(blocks + 2):  # the first ones are not counted
        for name in list(loops)[:: 1 if block % 2 else -1]:
            taken = timed(loops[name], steps)
            if block >= 2:
                times[name].append(taken)
    for loop in loops.values():
        loop.close()
    return times


def run_alone(width: int, blocks: int) -> dict[str, list[tuple[float, float]]]:
    """The same in the one worker of ``taut run``: this file is its script."""
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as folder:
        told = Path(folder) / "times.json"
        words = ["run", "--workers", "1", "--threads", "1", "--runs-dir", f"{folder}/runs"]
        mine = [__file__, "--inside", str(told), "--width", str(width), "--blocks", str(blocks)]
        done = subprocess.run([str(TAUT), *words, *mine], check=False, timeout=LIMIT_S, capture_output=True, text=True)
        if not told.exists():  # else its exit code says only that the script did not go to the end of its data
            raise SystemExit(f"exit code {done.returncode}: {done.args}\n{done.stderr}")
        return {name: [(a, b) for a, b in times] for name, times in json.loads(told.read_text()).items()}


def rows_of(kind: str, size: str, times: dict[str, list[tuple[float, float]]]) -> list[Row]:
    cpu_s, wall_s = ({name: [one[i] for one in taken] for name, taken in times.items()} for i in (0, 1))
    where = f"{NAMES[kind]}, {size}"
    return [
        row(f"{where}: step of the plain loop", statistics.median(cpu_s["plain"]) * 1e3, "ms CPU"),
        row(f"{where}: with taut / without", median_ratio(cpu_s["taut"], cpu_s["plain"]), "x", at_most=BARS[kind]),
        row(f"{where}: by wall time", median_ratio(wall_s["taut"], wall_s["plain"]), "x"),
    ]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--blocks", type=int, default=150)
    parser.add_argument("--width", type=int, default=512, help=argparse.SUPPRESS)
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        args.inside.write_text(json.dumps(in_turn(args.width, args.blocks)))
        return
    blocks = 20 if args.quick else args.blocks
    rows: list[Row] = []
    for size, width in WIDTHS.items():
        rows += rows_of("join", size, in_turn(width, blocks))
        rows += rows_of("run", size, run_alone(width, blocks))
    report("overhead", rows, args)


if __name__ == "__main__":
    main()

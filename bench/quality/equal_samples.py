"""Is ``async`` with its default codec as good as synchronous training, at equal samples, on tasks that differ in kind?

Every task (``tasks/``: perceptrons, convolutions with batch norm, an autoencoder, adapters of low rank, a transformer, an
LSTM, recurrent networks with CTC) is trained synchronously, on the mean of all workers' gradients, and by replicas that
exchange the tether's updates (``replicas.py``: in one process, the library's codec, real payloads). The rates were chosen
once for synchronous training with 4 workers, from four that differ by factors of two, on seed 0, and are frozen. Scores
are losses on held-out data. Bytes are those of payloads against float32 updates to as many receivers. The bars, against
the synchronous losses of the same seeds:

    4 and 8 workers                              at most 1% more, at 50 times fewer bytes
    16 workers, or updates that come 8 steps late    at most 3% more, at 50 times fewer bytes

    python bench/quality/equal_samples.py [--seeds 3] [--only TEXT] [--cases 4:0,8:0,16:0,4:8] [--codec tether]
                                          [--minutes 5] [--made] [--quick] [--json]

Finished runs are lines of results/quality-runs.jsonl and are not made again; ``--minutes``: begin no run after so many;
``--made``: only report.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from replicas import exchanging, synchronous
from tasks import digits, speech, text

from report import RESULTS, Grid, Row, arguments, report, row
from taut.codecs import parse

TASKS = {**digits.TASKS, **text.TASKS, **speech.TASKS}
RUNS = RESULTS / "quality-runs.jsonl"
CASES = "4:0,8:0,16:0,4:8"  # workers : turns of lateness
NEAR, LESS_NEAR = 1.0, 3.0  # %
FEWER = 50.0


def wanted(args: argparse.Namespace) -> Iterator[tuple[str, str, int, int, int]]:
    """Yield (task, method, workers, lateness, seed), the seeds of all tasks in turn."""
    tasks = [name for name in TASKS if args.only in name]
    cases = [tuple(map(int, case.split(":"))) for case in ("4:0" if args.quick else args.cases).split(",")]
    for seed in range(1 if args.quick else args.seeds):
        for workers, late in cases:
            for task in tasks[:2] if args.quick else tasks:
                yield task, "sync", workers, 0, seed
                yield task, args.codec, workers, late, seed


def made(one: tuple[str, str, int, int, int]) -> dict[str, Any]:
    name, method, workers, late, seed = one
    task = TASKS[name]
    done = synchronous(task, workers, seed) if method == "sync" else exchanging(task, parse(method), workers, late, seed)
    assert done.identical, f"{one}: replicas differ"
    return {"run": list(one), "loss": done.loss, "fewer": done.dense / max(1.0, done.sent)}


def runs(args: argparse.Namespace) -> dict[tuple[Any, ...], dict[str, Any]]:
    lines = RUNS.read_text().splitlines() if RUNS.exists() and not args.quick else []
    known = {tuple(one["run"]): one for one in map(json.loads, lines)}
    end, found = time.monotonic() + 60.0 * args.minutes, {}
    for one in dict.fromkeys(wanted(args)):
        if one not in known and not args.made and time.monotonic() < end:
            known[one] = made(one)
            print(one, f"{known[one]['loss']:.4f}, {known[one]['fewer']:.0f} times fewer", file=sys.stderr, flush=True)
            if not args.quick:
                with RUNS.open("a") as file:
                    file.write(json.dumps(known[one]) + "\n")
        if one in known:
            found[one] = known[one]
    return found


def rows_of(found: dict[tuple[Any, ...], dict[str, Any]], quick: bool) -> tuple[list[Row], Grid]:
    cells: dict[tuple[str, str, int, int], dict[int, dict[str, Any]]] = {}
    for (task, method, workers, late, seed), one in found.items():
        if method != "sync" and (task, "sync", workers, 0, seed) in found:
            cells.setdefault((task, method, workers, late), {})[seed] = one
    rows, lines = [], {}
    for (task, _, workers, late), each in cells.items():
        base = {seed: found[task, "sync", workers, 0, seed]["loss"] for seed in each}
        mean, sync = (statistics.fmean(values) for values in ([one["loss"] for one in each.values()], base.values()))
        more = [100.0 * (one["loss"] / base[seed] - 1.0) for seed, one in each.items()]
        fewer = min(one["fewer"] for one in each.values())
        bar = NEAR if workers <= 8 and not late else LESS_NEAR
        name = f"{task}, {workers} workers" + (f", {late} steps late" if late else "")
        above = 100.0 * (mean / sync - 1.0)
        rows.append(row(f"{name}: loss above sync's, {len(each)} seed(s)", above, "%", at_most=None if quick else bar))
        rows.append(row(f"{name}: times fewer bytes", fewer, "x", at_least=None if quick else FEWER))
        lines[name] = [len(each), sync, mean, above, min(more), max(more), fewer]
    columns = ("seeds", "sync's loss", "tether's", "above, %", "least", "most", "times fewer bytes")
    return rows, Grid("task", columns, lines)


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="tasks whose names contain this")
    parser.add_argument("--cases", default=CASES, help="workers:lateness in turns, separated by commas")
    parser.add_argument("--codec", default="tether")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after so many")
    parser.add_argument("--made", action="store_true", help="report the runs that are made, and make none")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows, grid = rows_of(runs(args), args.quick)
    report("quality-equal_samples", rows, args, grid)


if __name__ == "__main__":
    main()

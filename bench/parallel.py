"""What does each process hold, and how long does a step take, when a model is cut?

The four ways of docs/parallel.md: a pipelined transformer, an MLP by columns and rows, an AlexNet-like network by
filters, two paths (``jobs/parallel.py``: 7 to 17 million parameters, AdamW, ``async``, one thread per process). Each
as one process, one island of two, and two islands of two. The parts are counted tensor by tensor: weights, gradients and
optimizer. The resident memory beyond the imports has activations, buffers and the codec in it, and the whole model's
weights, from which each process takes its part.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from processes import Made, taut_run
from report import Grid, Row, arguments, report, row

NAMES = {
    "transformer": "transformer, pipeline",
    "mlp": "MLP, columns and rows",
    "alexnet": "AlexNet-like, filters",
    "paths": "two paths",
}
WAYS = {"1 process": (1, 1), "1 island of 2": (1, 2), "2 islands of 2": (2, 2)}  # islands, processes of each
COLUMNS = ("part 0, MB", "part 1, MB", "resident, MB", "step, ms", "CPU per step, ms", "load before")
PARTS = ("weights", "gradients", "optimizer")
MOST = 0.6  # of the whole model's bytes, that a process of two may hold


def part_nbytes(made: Made, part: int) -> int | None:
    found = [sum(each[kind] for kind in PARTS) for each in made.records if each["part"] == part]
    return max(found) if found else None


def measure(folder: Path, models: list[str], steps: int) -> tuple[list[Row], Grid]:
    rows, lines = list[Row](), dict[str, list[float | None]]()
    for model in models:
        whole = 0
        for way, (islands, size) in WAYS.items():
            load = os.getloadavg()[0]
            given = ["--model", model, "--steps", str(steps), "--islands", str(islands)]
            options = ["--island", str(size)]
            made = taut_run("parallel.py", given, folder / model, workers=islands * size, options=options)
            parts = [part_nbytes(made, part) for part in range(2)]
            whole = whole or parts[0] or 0
            name = f"{NAMES[model]}: {way}"
            lines[name] = [None if each is None else each / 1e6 for each in parts]
            resident = max(each["grown"] for each in made.records) / 1e6
            step_ms, cpu_ms = (1e3 * max(each[key] for each in made.records) for key in ("step_s", "cpu_s"))
            lines[name] += [resident, step_ms, cpu_ms, load]
            if size > 1:
                most = max(each for each in parts if each is not None) / whole
                rows.append(row(f"{name}: largest part / whole", most, "x", at_most=MOST))
    return rows, Grid("cut", COLUMNS, lines)


def main(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as folder:
        rows, grid = measure(Path(folder), ["mlp"] if args.quick else list(NAMES), 5 if args.quick else 30)
    report("parallel", rows, args, grid)


if __name__ == "__main__":
    main(arguments(__doc__ or "").parse_args())

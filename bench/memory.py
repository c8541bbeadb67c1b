"""How many copies of the parameters does a worker hold beyond the plain loop, whatever the number of its peers?

A model of 25 million parameters. What counts is the process's private memory after each step, so that logs, buffers and
sockets are in it, against a plain process with the same loop. The allocator is told to give large blocks back at once:
what it would keep for later differs from run to run, and is nobody's copy.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from processes import Made, plain_run, taut_run
from report import Row, arguments, report, row

BARS = {"tether": 1.5, "threshold": 2.5}


def copies(made: Made, plain: Made, which: str) -> float:
    """Of the worker that holds most."""
    return float(max(r[which] for r in made.records) - plain.records[0][which]) / (4 * plain.records[0]["parameters"])


def measure(folder: Path, numbers: list[int], steps: int) -> list[Row]:
    args = ["--steps", str(steps)]
    plain = plain_run("large.py", args, folder / "plain", processes=1)
    size_nbytes = 4 * plain.records[0]["parameters"]
    rows = [row("plain loop", plain.records[0]["median"] / size_nbytes, "copies")]
    for workers in numbers:
        for codec, bar in BARS.items():
            name = f"{codec}, {workers} workers"
            job = [*args, "--peers", str(workers)]
            made = taut_run("large.py", job, folder / codec, workers=workers, options=["--codec", codec])
            rows.append(row(f"{name}: extra", copies(made, plain, "median"), "copies", at_most=bar))
            rows.append(row(f"{name}: extra at most", copies(made, plain, "most"), "copies"))
    return rows


def main(args: argparse.Namespace) -> None:
    os.environ["MALLOC_MMAP_THRESHOLD_"] = "131072"
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as folder:
        rows = measure(Path(folder), [2] if args.quick else [2, 6], 24 if args.quick else 60)
    report("memory", rows, args)


if __name__ == "__main__":
    main(arguments(__doc__ or "").parse_args())

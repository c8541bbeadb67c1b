"""How long from ``taut run --workers 4 SCRIPT`` to the first step of all four, beside ``python -c "import torch"``?

The script imports torch and taut, and nothing else. Both are started in turn, several times; kernels come from the cache
and files from memory, as on any second start.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from processes import JOBS, LIMIT_S, TAUT, median_ratio
from report import Row, arguments, report, row

WORKERS = 4


def import_torch() -> float:
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", "import torch"], check=True, timeout=LIMIT_S)
    return time.monotonic() - begun


def first_steps() -> float:
    """Seconds until the last of the workers has done its first step."""
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as folder:
        out = Path(folder) / "steps"
        out.mkdir()
        command = [str(TAUT), "run", "--workers", str(WORKERS), "--quiet", "--runs-dir", str(Path(folder) / "runs")]
        begun = time.monotonic()
        subprocess.run([*command, str(JOBS / "first_step.py"), str(out)], check=True, timeout=LIMIT_S)
        stamps = [float(path.read_text()) for path in out.iterdir()]
    if len(stamps) != WORKERS:
        raise SystemExit(f"{len(stamps)} of {WORKERS} workers made a step: the others got no data")
    return max(stamps) - begun


def measure(repetitions: int) -> list[Row]:
    times: dict[str, list[float]] = {"torch": [], "taut": []}
    for repetition in range(repetitions + 1):  # the first warms the caches
        taken = {"torch": import_torch(), "taut": first_steps()}
        if repetition:
            for name, seconds in taken.items():
                times[name].append(seconds)
    return [
        row('python -c "import torch"', statistics.median(times["torch"]), "s"),
        row(f"first step of {WORKERS} workers", statistics.median(times["taut"]), "s"),
        row("first step / import torch", median_ratio(times["taut"], times["torch"]), "x", at_most=3.0),
    ]


def main(args: argparse.Namespace) -> None:
    report("startup", measure(2 if args.quick else 7), args)


if __name__ == "__main__":
    main(arguments(__doc__ or "").parse_args())

"""How long from ``torchrun --nproc-per-node 2 SCRIPT`` to the first step of both, beside ``taut run -n 2 SCRIPT``?

torchrun's own start is measured, too: the first step of a plain loop in each process, without taut. All are
started in turn, several times; kernels come from the cache and files from memory, as on any second start.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from processes import JOBS, LIMIT_S, TAUT, median_ratio
from report import Row, arguments, report, row

WORKERS = 2
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(WORKERS)]
PLAIN = """
import os, sys, time, torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 8)).square().mean().backward()
optimizer.step()
open(os.path.join(sys.argv[1], os.environ["RANK"]), "w").write(str(time.monotonic()))
"""


def seconds(command: list[str], script: Path | None = None) -> float:
    """Return the seconds until the last process of ``command`` has written its time; ``script``: else, a plain loop."""
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as folder:
        (out := Path(folder) / "steps").mkdir()
        if script is None:
            script = Path(folder) / "plain.py"
            script.write_text(PLAIN)
        settings = {"TAUT_RUNS_DIR": str(Path(folder) / "runs"), "TAUT_STRATEGY": "sync"}  # so that each gets data
        environment = {**os.environ, **settings, "OMP_NUM_THREADS": "1"}
        begun = time.monotonic()
        words = [*command, str(script), str(out)]
        subprocess.run(words, check=True, timeout=LIMIT_S, env=environment, capture_output=True)
        stamps = [float(path.read_text()) for path in out.iterdir()]
    if len(stamps) != WORKERS:
        raise SystemExit(f"{len(stamps)} of {WORKERS} workers made a step: the others got no data")
    return max(stamps) - begun


def measure(repetitions: int) -> list[Row]:
    job = JOBS / "first_step.py"
    times: dict[str, list[float]] = {"taut": [], "torchrun": [], "torch": []}
    for repetition in range(repetitions + 1):  # the first warms the caches
        taken = {
            "taut": seconds([str(TAUT), "run", "--workers", str(WORKERS), "--quiet"], job),
            "torchrun": seconds(TORCHRUN, job),
            "torch": seconds(TORCHRUN),
        }
        if repetition:
            for name, value in taken.items():
                times[name].append(value)
    return [
        row("taut run: first step", statistics.median(times["taut"]), "s"),
        row("torchrun: first step", statistics.median(times["torchrun"]), "s"),
        row("torchrun without taut: first step", statistics.median(times["torch"]), "s"),
        row("torchrun / taut run", median_ratio(times["torchrun"], times["taut"]), "x", at_most=1.3),
        row("torchrun / torchrun without taut", median_ratio(times["torchrun"], times["torch"]), "x"),
    ]


def main(args: argparse.Namespace) -> None:
    report("launchers", measure(2 if args.quick else 7), args)


if __name__ == "__main__":
    main(arguments(__doc__ or "").parse_args())

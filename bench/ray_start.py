"""How long from ``taut run --engine ray`` to the first step of all workers, beside ``taut run``?

The Ray cluster runs already, on this machine, and has room for the workers: its own start does not count. Both commands
are started in turn, several times. The command's own connection to Ray and the start of Ray's actor processes do count in
the first figure; the second begins when the actors answer. Needs Ray (``make test-ray`` makes an environment for it).
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from processes import JOBS, LIMIT_S, median_ratio
from report import Row, arguments, report, row

os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}


def first_steps(workers: int, *flags: str) -> tuple[float, float]:
    """Seconds until the last of the workers has done its first step: from the command, and from the workers' start."""
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as folder:
        out = Path(folder) / "steps"
        out.mkdir()
        command = [sys.executable, "-m", "taut", "run", "--workers", str(workers), "--threads", "1", *flags]
        command += ["--log", "info", "--runs-dir", str(Path(folder) / "runs"), str(JOBS / "first_step.py"), str(out)]
        begun, wall = time.monotonic(), time.time()
        done = subprocess.run(command, check=True, timeout=LIMIT_S, capture_output=True, text=True)
        stamps = [float(path.read_text()) for path in out.iterdir()]
    if len(stamps) != workers:
        raise SystemExit(f"{len(stamps)} of {workers} workers made a step: the others got no data")
    ready = re.search(r"actors answer at (\d+\.\d+)", done.stderr)
    taken = max(stamps) - begun
    return taken, taken - (float(ready[1]) - wall) if ready else taken


def measure(workers: int, repetitions: int, address: str) -> list[Row]:
    times: dict[str, list[float]] = {"local": [], "ray": [], "ready": []}
    for repetition in range(repetitions + 1):  # the first warms the caches
        local, _ = first_steps(workers)
        ray, ready = first_steps(workers, "--engine", "ray", "--ray-address", address)
        if repetition:
            for name, seconds in {"local": local, "ray": ray, "ready": ready}.items():
                times[name].append(seconds)
    return [
        row(f"taut run, first step of {workers} workers", statistics.median(times["local"]), "s"),
        row("with --engine ray", statistics.median(times["ray"]), "s"),
        row("with --engine ray, from when the actors answer", statistics.median(times["ready"]), "s"),
        row("with --engine ray / taut run", median_ratio(times["ray"], times["local"]), "x"),
        row("from when the actors answer / taut run", median_ratio(times["ready"], times["local"]), "x", at_most=1.3),
    ]


def main(args: argparse.Namespace) -> None:
    from ray.cluster_utils import Cluster

    head = {"num_cpus": args.workers, "include_dashboard": False, "object_store_memory": 100 << 20}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        report("ray_start", measure(args.workers, 2 if args.quick else 7, cluster.address), args)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    parser = arguments(__doc__ or "")
    parser.add_argument("--workers", type=int, default=2)
    main(parser.parse_args())

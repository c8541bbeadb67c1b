"""Does the adviser tell the truth? ``taut advise --verify`` on three tasks: what it predicted beside what it measured.

Steps of about 2, 20 and 100 ms (``jobs/advised.py``), two workers on this machine, a probe for each. The command runs the
best two of its own list for ``--seconds`` each. A ratio is predicted / measured; the worst is held against the bar.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from processes import JOBS, LIMIT_S, TAUT
from report import Row, arguments, report, row

SHARED = Path(__file__).resolve().parents[2] / "shared"
TASKS = ("mlp", "cnn", "transformer")
TIME, BYTES = 0.15, 1.5  # the most that a prediction may be off: as a share, and as a factor


def advised(task: str, args: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the command said, and the probe that it made."""
    job = [str(JOBS / "advised.py"), "--task", task, "--data", str(args.data)]
    with tempfile.TemporaryDirectory(prefix="taut-bench-") as folder:
        words = ["advise", "--json", "--workers", "2", "--verify", "--seconds", str(args.seconds), *job]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        call: Any = {"capture_output": True, "text": True, "timeout": LIMIT_S, "cwd": folder, "env": environment}
        done = subprocess.run([str(TAUT), *words], check=False, **call)
        if done.returncode:
            raise SystemExit(f"{task}: exit code {done.returncode}\n{done.stderr}")
        return json.loads(done.stdout), json.loads((Path(folder) / "probe.json").read_text())


def rows_of(task: str, args: argparse.Namespace) -> tuple[list[Row], list[float], list[float]]:
    said, probe = advised(task, args)
    rows = [row(f"{task}: a step in the probe", 1e3 * max(each["step_s"] for each in probe["workers"]), "ms")]
    times, sizes = [], []
    for one in said["verified"]:
        time = one["measured_samples_per_s"] / one["predicted_samples_per_s"]
        size = one["predicted_bytes_per_step"] / one["measured_bytes_per_step"]
        text = f"{task}, {one['name']}: "
        rows += [
            row(f"{text}time of a step, predicted / measured", time, "x"),
            row(f"{text}bytes of a step, measured", one["measured_bytes_per_step"], "B"),
            row(f"{text}bytes of a step, predicted / measured", size, "x"),
        ]
        print(f"{text}time {time:.2f}, bytes {size:.2f}", file=sys.stderr, flush=True)
        times.append(abs(time - 1.0))
        sizes.append(math.exp(abs(math.log(size))))
    return rows, times, sizes


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, default=SHARED / "data")
    parser.add_argument("--seconds", type=float, default=20.0)
    args = parser.parse_args()
    if args.quick:
        args.seconds = 4.0
    rows: list[Row] = []
    times: list[float] = []
    sizes: list[float] = []
    for task in TASKS[:1] if args.quick else TASKS:
        more, late, large = rows_of(task, args)
        rows, times, sizes = rows + more, times + late, sizes + large
    rows.append(row("worst error of the time of a step", max(times), "", at_most=TIME))
    rows.append(row("worst factor between bytes predicted and measured", max(sizes), "x", at_most=BYTES))
    report("adviser", rows, args)


if __name__ == "__main__":
    main()

"""How long do the others stand still when a worker joins synchronous training? Real processes on this machine: two
workers, a third one joins in mid-run and is given the weights and Adam's averages (12 bytes per parameter). The longest
time between two steps of those who were there, around the moment at which the newcomer has the state, against their
longest before."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from processes import JOBS
from report import Row, arguments, report, row
from taut.testing.cluster import LocalCluster

SIZES = (1_000_000, 8_000_000)
STEPS = 20


def measured(parameters: int, folder: Path) -> list[Row]:
    gate, out = folder / "gate", folder / "out"
    out.mkdir(parents=True)
    args = ["--parameters", str(parameters), "--gate", str(gate), "--out", str(out)]
    settings: dict[str, object] = {"strategy": "sync", "codec": "dense"}
    with LocalCluster(
        JOBS / "late_joiner.py", 2, folder / "run", args=args, settings=settings, patience_s=240
    ) as cluster:
        cluster.until(lambda v: len(v.workers) == 2 and all(r.statistics.steps > STEPS for r in v.workers), "steps")
        cluster.add(1)
        cluster.until(lambda v: len(v.workers) == 3 and v.workers[2].statistics.steps > STEPS, "the newcomer to train")
        pids = [each.pid for each in cluster.poll().workers]
        gate.touch()
        outcome = cluster.outcome()
        cluster.until_exits(3)
        waited_s = float(re.findall(r"the run's state was here after ([0-9.]+) s", cluster.logs())[0])
    first, newcomer = (list(map(float, (out / f"{pid}.txt").read_text().split())) for pid in (pids[0], pids[2]))
    began_s = newcomer[0] - waited_s - 1.0
    before = max(later - earlier for earlier, later in pairwise(first) if later < began_s)
    pause = max(later - earlier for earlier, later in pairwise(first) if began_s < later < newcomer[0] + 1.0)
    megabytes, name = 12 * parameters / 1e6, f"{parameters / 1e6:g}M parameters"
    return [
        row(f"{name}: state", megabytes, "MB"),
        row(f"{name}: longest time between two steps, before", before, "s"),
        row(f"{name}: the same, when one joins", pause, "s"),
        row(f"{name}: the newcomer waits for the state", waited_s, "s"),
        row(f"{name}: replicas equal", float(bool(outcome.identical)), "", at_least=1.0),
    ]


def main(args: argparse.Namespace) -> None:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="taut-late-joiner-") as folder:
        for parameters in SIZES[:1] if args.quick else SIZES:
            rows += measured(parameters, Path(folder) / str(parameters))
            sys.stderr.write(f"{parameters}: {rows[-4:]}\n")
    report("late_joiner", rows, args)


if __name__ == "__main__":
    main(arguments(__doc__ or "").parse_args())

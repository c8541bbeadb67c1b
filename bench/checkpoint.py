"""How long does training stand still for a checkpoint?

One worker (AdamW, tether: 16 bytes of state per parameter), a checkpoint every few seconds. Every step is timed from
batch to batch. A step *with* a checkpoint is one during which memory was made ready, the state copied, or the file
written; of each checkpoint the longest such step counts, less the median of the nearest steps without: what it cost more
than usual. The bar is one step, for every checkpoint, the first included. ``all cores``: torch computes on all of them,
so that there is none to spare.

On a machine that others use, a step may be long for no reason of ours: the longest one without a checkpoint says how
much that is, and what is above the bar by no more than that is theirs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import Made, taut_run
from report import Row, arguments, report, row

NEAREST = 11
WARM_STEPS = 3  # the first ones are of another length: the optimizer makes its state, kernels are loaded


@dataclass(frozen=True)
class Case:
    """A model of ``layers`` square layers, and how it is trained."""

    name: str
    width: int
    layers: int
    batch: int
    threads: int = 1

    def run(self, folder: Path, seconds: float, every_s: float) -> Made:
        words = ["--width", self.width, "--layers", self.layers, "--batch", self.batch, "--seconds", seconds]
        options = ["--checkpoint-every", f"{every_s:g}s", "--keep-checkpoints", "1", "--threads", str(self.threads)]
        return taut_run("checkpointed.py", [str(word) for word in words], folder, workers=1, options=options)


CORES = os.cpu_count() or 1
CASES = (
    Case("4 MB, short steps", 250, 4, 64),
    Case("201 MB", 1250, 8, 160),
    Case("201 MB, all cores", 1250, 8, 160, CORES),
    Case("201 MB, short steps", 1250, 8, 8),
)


def rows(case: Case, record: dict[str, Any]) -> list[Row]:
    steps = [(taken_s, number, busy) for taken_s, number, busy in record["steps"]][WARM_STEPS:]
    usual = {place: taken_s for place, (taken_s, _, busy) in enumerate(steps) if not busy}
    if len(usual) < NEAREST:
        raise SystemExit(f"{case.name}: only {len(usual)} of {len(steps)} steps without a checkpoint")
    longest: dict[int, tuple[float, int]] = defaultdict(lambda: (0.0, 0))  # of each checkpoint, and where it was
    asked = 0
    for place, (taken_s, number, busy) in enumerate(steps):
        asked = asked if busy else number + 1  # the next one: it is asked for before its number is taken
        if busy:
            longest[asked] = max(longest[asked], (taken_s, place))
    nearby = [statistics.median(usual[at] for at in _nearest(usual, place)) for _, place in longest.values()]
    over = [taken_s / step_s - 1.0 for (taken_s, _), step_s in zip(longest.values(), nearby, strict=True)]
    return [
        row(f"{case.name}: median step", 1e3 * statistics.median(usual.values()), "ms"),
        row(f"{case.name}: longest step without a checkpoint", 1e3 * max(usual.values()), "ms"),
        row(f"{case.name}: checkpoints", len(over), ""),
        row(f"{case.name}: extra, median checkpoint", statistics.median(over), "steps"),
        row(f"{case.name}: extra, first checkpoint", over[0], "steps", at_most=1.0),
        row(f"{case.name}: extra, worst checkpoint", max(over), "steps", at_most=1.0),
    ]


def _nearest(usual: Collection[int], place: int) -> list[int]:
    """The steps without a checkpoint that are nearest: what slows the machine for a while slows them, too."""
    return sorted(usual, key=lambda at: abs(at - place))[:NEAREST]


def main(args: argparse.Namespace) -> None:
    seconds, every_s = (9.0, 3.0) if args.quick else (30.0, 3.0)
    measured: list[Row] = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for case in CASES:
            if not args.only or any(word in case.name for word in args.only):
                measured += rows(case, case.run(Path(folder) / "run", seconds, every_s).records[0])
    report("checkpoint", measured, args)


if __name__ == "__main__":
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", nargs="*", help="cases whose name contains one of these")
    parser.add_argument("--folder", type=Path, help="where the checkpoints are written; the system's temporary one")
    main(parser.parse_args())

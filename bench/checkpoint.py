"""How long does training stand still for a checkpoint?

One worker (AdamW, tether: 16 bytes of state per parameter), a checkpoint every few seconds. Every step is timed from
batch to batch. A checkpoint's steps are all during which memory was made ready, the state copied, or the file written.
With u, the median of the steps without a checkpoint that come next,

    longest     = max(its steps) / u - 1               the worst that any single step had to stand still
    altogether  = sum(its steps) / u - their number    what it cost, slowing down included; no bar: work takes time

On a machine that others use, steps are long for no reason of ours, and the more steps one looks at, the longer the
longest. So each checkpoint has its *quiet window*: the next steps without a checkpoint, as many as it had itself. These
are judged in the same way, and

    standstill  = longest of all checkpoints - longest of all their quiet windows

is what checkpoints add to the machine's own worst, by stopping training or by taking cores and memory from it; *stopped*
is the first alone, as the worker accounts for it. The bar is one step. Both terms are shown: a quiet machine's second
one is near 0, and then the bar is on the plain worst; where it is not, look at the first one, too. One long step in a
quiet window could hide what checkpoints do, so there is a second bar that it cannot move: the same difference of medians
instead of worsts. The first checkpoint counts like any other. ``all cores``: torch computes on all of them, so that there
is none to spare.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes import Made, taut_run
from report import Row, arguments, report, row

NEAREST = 11  # so many steps at least say how long one usually takes
# The first step, and those that begin this soon after it, are of another length: kernels are compiled or loaded, the
# optimizer makes its state.
WARM_S = 1.0
CHECKPOINTS = 15

Step = tuple[float, int, bool]  # how long it took; the last checkpoint that was copied; whether one was being made


@dataclass(frozen=True)
class Case:
    """A model of ``layers`` square layers, and how it is trained."""

    name: str
    width: int
    layers: int
    batch: int
    threads: int = 1
    every_s: float = 4.0

    def run(self, folder: Path, checkpoints: int) -> Made:
        seconds = WARM_S + self.every_s * (checkpoints + 0.8)
        words = ["--width", self.width, "--layers", self.layers, "--batch", self.batch, "--seconds", seconds]
        options = ["--checkpoint-every", f"{self.every_s:g}s", "--keep-checkpoints", "1", "--threads", str(self.threads)]
        return taut_run("checkpointed.py", [str(word) for word in words], folder, workers=1, options=options)


CORES = os.cpu_count() or 1
CASES = (
    Case("4 MB, short steps", 250, 4, 64, every_s=1.5),
    Case("201 MB", 1250, 8, 160),
    Case("201 MB, all cores", 1250, 8, 160, CORES, every_s=6.0),
    Case("201 MB, short steps", 1250, 8, 8),
)


@dataclass(frozen=True)
class Compared:
    """A checkpoint's steps, and the quiet ones after it: how long each took."""

    steps_s: Sequence[float]
    quiet_s: Sequence[float]
    usual_s: float

    @property
    def longest(self) -> float:
        return max(self.steps_s) / self.usual_s - 1.0

    @property
    def quiet_longest(self) -> float:
        return max(self.quiet_s) / self.usual_s - 1.0

    @property
    def altogether(self) -> float:
        return sum(self.steps_s) / self.usual_s - len(self.steps_s)

    @property
    def quiet_altogether(self) -> float:
        return sum(self.quiet_s) / self.usual_s - len(self.quiet_s)


def warmed(steps: Sequence[Sequence[Any]]) -> list[Step]:
    """Without the first, and those that began in the first moments after it.

    >>> warmed([(9.0, 0, False), (0.9, 0, False), (0.2, 0, False), (0.3, 0, True)])
    [(0.3, 0, True)]
    """
    begun_s = itertools.accumulate((taken_s for taken_s, _, _ in steps[1:]), initial=0.0)
    return [(step[0], step[1], step[2]) for at_s, step in zip(begun_s, steps[1:], strict=False) if at_s >= WARM_S]


def unmeasured(steps: Sequence[Step], made: int) -> str:
    """Why these ``steps``, of ``made`` altogether, say nothing; empty where they do.

    >>> unmeasured([(0.5, 0, False)] * 12, 20)
    'no checkpoint was made during the 12 steps (6.0 s) after the warm-up'
    >>> unmeasured([], 1)
    'no step of 1 began after the warm-up (the first step, and 1 s)'
    """
    if not steps:
        return f"no step of {made} began after the warm-up (the first step, and {WARM_S:g} s)"
    whole_s = sum(taken_s for taken_s, _, _ in steps)
    span = f"the {len(steps)} steps ({whole_s:.1f} s) after the warm-up"
    quiet = sum(not busy for _, _, busy in steps)
    if quiet == len(steps):
        return f"no checkpoint was made during {span}"
    if quiet < NEAREST:
        return f"only {quiet} of {span} were without a checkpoint: at least {NEAREST} say how long one usually takes"
    return ""


def compared(steps: Sequence[Step]) -> list[Compared]:
    """Every checkpoint with its quiet window, which goes on after the next checkpoint, or at the run's beginning, where
    there are too few steps between two.

    >>> one = compared([(1.0, 0, False)] * 6 + [(1.5, 0, True), (1.2, 1, True)] + [(1.0, 1, False), (1.1, 1, False)] * 3)
    >>> [(round(each.longest, 3), round(each.quiet_longest, 3), round(each.altogether, 3)) for each in one]
    [(0.5, 0.1, 0.7)]
    """
    quiet = [taken_s for taken_s, _, busy in steps if not busy]
    found: list[Compared] = []
    own: list[float] = []
    passed = 0
    for taken_s, _, busy in [*steps, (0.0, 0, False)]:
        if busy:
            own.append(taken_s)
            continue
        if own:
            around = [*quiet[passed:], *quiet[:passed]]
            usual_s = statistics.median(around[: max(NEAREST, len(own))])
            found.append(Compared(own, around[: len(own)], usual_s))
            own = []
        passed += 1
    return found


class Unmeasured(Exception):
    """A run was made, but what it was made for did not happen in it."""


def rows(case: Case, record: dict[str, Any]) -> list[Row]:
    steps = warmed(record["steps"])
    if why := unmeasured(steps, len(record["steps"])):
        raise Unmeasured(f"{case.name}: {why}")
    quiet = [taken_s for taken_s, _, busy in steps if not busy]
    each = compared(steps)
    longest, without = [one.longest for one in each], [one.quiet_longest for one in each]
    middle, quiet_middle = statistics.median(longest), statistics.median(without)
    altogether = statistics.median(one.altogether for one in each)
    quiet_altogether = statistics.median(one.quiet_altogether for one in each)
    return [
        row(f"{case.name}: median step", 1e3 * statistics.median(quiet), "ms"),
        row(f"{case.name}: checkpoints", len(each), ""),
        row(f"{case.name}: steps during one, median", statistics.median(len(one.steps_s) for one in each), ""),
        row(f"{case.name}: longest, first checkpoint", longest[0], "steps"),
        row(f"{case.name}: longest, median checkpoint", middle, "steps"),
        row(f"{case.name}: longest, median quiet window", quiet_middle, "steps"),
        row(f"{case.name}: standstill, median", middle - quiet_middle, "steps", at_most=1.0),
        row(f"{case.name}: longest, worst checkpoint", max(longest), "steps"),
        row(f"{case.name}: longest, worst quiet window", max(without), "steps"),
        row(f"{case.name}: standstill, worst", max(longest) - max(without), "steps", at_most=1.0),
        row(
            f"{case.name}: stopped, worst checkpoint",
            max(record["stopped_s"]) / statistics.median(quiet),
            "steps",
            at_most=1.0,
        ),
        row(f"{case.name}: altogether, median checkpoint", altogether, "steps"),
        row(f"{case.name}: altogether, median quiet window", quiet_altogether, "steps"),
    ]


def main(args: argparse.Namespace) -> None:
    checkpoints = 2 if args.quick else CHECKPOINTS
    measured: list[Row] = []
    missing: list[str] = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for case in CASES:
            if not args.only or any(word in case.name for word in args.only):
                try:
                    measured += rows(case, case.run(Path(folder) / "run", checkpoints).records[0])
                except Unmeasured as why:
                    missing.append(str(why))
    if missing:  # nothing is written to results/: half a table there would pass for a whole one
        for one in measured:
            print(f"{one.name}: {one.value:.4g} {one.unit}")
        raise SystemExit("not measured:\n  " + "\n  ".join(missing))
    report("checkpoint", measured, args)


if __name__ == "__main__":
    parser = arguments(__doc__ or "")
    parser.add_argument("--only", nargs="*", help="cases whose name contains one of these")
    parser.add_argument("--folder", type=Path, help="where the checkpoints are written; the system's temporary one")
    main(parser.parse_args())

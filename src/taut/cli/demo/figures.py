"""The results of the trainings of ``taut demo``: curves, the time to a target, pauses, and the sentences about them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from taut.quantities import size

SMOOTH_S = 2.0  # the loss at a moment is the mean of the evaluations in this time before it


@dataclass(frozen=True)
class DemoPoint:
    """The first worker's model after ``seconds`` of training: its loss and accuracy on held-out digits, smoothed."""

    seconds: float
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Training:
    """One training of the demo. ``killed_s``: when a worker was killed, and ``pause_s``: the longest time between two
    steps of a worker that was left, from then on; both None where none was killed."""

    name: str
    run: str
    model: Path
    workers: int
    curve: Sequence[DemoPoint]
    samples_per_s: float
    bytes_sent: int
    identical: bool | None
    killed_s: float | None = None
    pause_s: float | None = None

    @property
    def last(self) -> DemoPoint:
        return self.curve[-1]

    def time_to(self, loss: float) -> float | None:
        """Return after how many seconds the loss was no higher than this; None if it never was."""
        return next((point.seconds for point in self.curve if point.loss <= loss), None)


@dataclass(frozen=True)
class Notes:
    """The notes of a training's workers: the times of their steps, and the quality of the first worker's weights."""

    steps: Mapping[int, Sequence[tuple[float, int]]]  # rank -> time and samples of each step
    losses: Sequence[tuple[float, float, float]]  # time, loss, accuracy

    @property
    def began_s(self) -> float:
        return min(times[0][0] for times in self.steps.values())

    @property
    def samples_per_s(self) -> float:
        """Return the samples of all workers, divided by the time from the first step to the last."""
        last_s = max(times[-1][0] for times in self.steps.values())
        return sum(samples for times in self.steps.values() for _, samples in times) / max(1e-9, last_s - self.began_s)

    def curve(self) -> list[DemoPoint]:
        """Return the smoothed losses over the seconds of training."""
        points = []
        for at_s, _, _ in self.losses:
            recent = [each for each in self.losses if at_s - SMOOTH_S < each[0] <= at_s]
            loss, accuracy = (sum(each[k] for each in recent) / len(recent) for k in (1, 2))
            points.append(DemoPoint(at_s - self.began_s, loss, accuracy))
        return points

    def killed_s(self, rank: int) -> float:
        """Return after how many seconds this worker made its last step."""
        return self.steps[rank][-1][0] - self.began_s

    def longest_pause_s(self, killed: int) -> float:
        """Return the longest time between two steps of one of the others that ended after the kill."""
        kill_s = self.steps[killed][-1][0]
        others = (times for rank, times in self.steps.items() if rank != killed)
        return max((b[0] - a[0] for times in others for a, b in pairwise(times) if b[0] > kill_s), default=0.0)


def read_notes(folder: Path) -> Notes:
    """Read the notes of the workers in ``folder``; the last line of a killed one may be cut."""
    steps = {}
    for path in sorted(folder.glob("steps-*.jsonl")):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        if rows:
            steps[int(path.stem.removeprefix("steps-"))] = [(float(at_s), int(samples)) for at_s, samples in rows]
    losses = [tuple(row) for row in json.loads((folder / "losses.json").read_text(encoding="utf-8"))]
    return Notes(steps, losses)


def sentences(alone: Training, others: Sequence[Training], target: float) -> list[str]:
    """Say in two sentences what was seen."""
    reached = [f"{each.name} {_reached(each, alone, target)}" for each in others]
    first = f"To the loss that one worker had after {alone.last.seconds:.0f} s: {'; '.join(reached)}."
    killed = [each for each in others if each.pause_s is not None]
    pauses = " and ".join(f"{each.pause_s:.2f} s ({each.name})" for each in killed)
    sent = " against ".join(f"{size(each.bytes_sent)} ({each.name})" for each in others)
    same = "identical" if all(each.identical for each in others) else "not all identical"
    second = f"After a worker was killed, no other paused for more than {pauses}; " if killed else ""
    second += f"sent: {sent}; the replicas that were left were {same} in the end."
    return [first, second[0].upper() + second[1:]]


def _reached(training: Training, alone: Training, target: float) -> str:
    took_s = training.time_to(target)
    if took_s is None:
        return f"did not get there (its loss was {training.last.loss:.2f}, not {target:.2f})"
    usual_s = alone.time_to(target) or alone.last.seconds
    ratio = usual_s / took_s
    if math.isclose(ratio, 1.0, abs_tol=0.05):
        return f"got there in {took_s:.1f} s, as fast as one worker"
    words = f"{ratio:.1f} times as fast as" if ratio > 1.0 else f"{1 / ratio:.1f} times as slow as"
    return f"got there in {took_s:.1f} s, {words} one worker"

"""The target of a comparison: a quality, and the time when a run reached it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from taut.comparison.runs.history import smoothed
from taut.comparison.runs.record import RunRecord
from taut.errors import Misuse

Metric = Literal["score", "loss"]


@dataclass(frozen=True)
class Target:
    """A validation score, or a training loss, to be reached."""

    value: float
    metric: Metric

    def __str__(self) -> str:
        return f"{'validation score' if self.metric == 'score' else 'training loss'} {self.value:g}"


@dataclass(frozen=True)
class Reached:
    """The time when a run reached the target. ``by_end``: the score was measured at the end only, so the target may have
    been reached before."""

    time_s: float
    by_end: bool = False


def metric_of(records: Sequence[RunRecord]) -> Metric:
    """Return the measure of quality: the validation score where every finished run has one, else the training loss."""
    finished = [record for record in records if record.finished]
    return "score" if finished and all(record.score is not None for record in finished) else "loss"


def parse_target(given: str | float, records: Sequence[RunRecord]) -> Target:
    """Read a target: ``0.95`` of the score where there is one, else of the loss; ``loss=0.1`` or ``score=0.95`` of that.

    >>> parse_target("loss=0.1", []), parse_target(0.25, [])
    (Target(value=0.1, metric='loss'), Target(value=0.25, metric='loss'))
    """
    metric, value = check_target(given)
    return Target(value, metric or metric_of(records))


def check_target(given: str | float) -> tuple[Metric | None, float]:
    """Return the metric, None where none is named, and the value."""
    name, equals, value = str(given).rpartition("=")
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if math.isnan(number) or (equals and name not in ("score", "loss")):
        raise Misuse(f"--target {given}", "a number, score=NUMBER or loss=NUMBER", "as in --target 0.95")
    return (("score" if name == "score" else "loss") if equals else None), number


def reached(record: RunRecord, target: Target) -> Reached | None:
    """Return when a run reached the target; None where it did not.

    >>> record = RunRecord("k", "sync", "ring", "dense", 2, 0, scores=((1.0, 0.5), (2.0, 0.9)), score=0.9, wall_s=2.0)
    >>> reached(record, Target(0.8, "score")), reached(record, Target(0.95, "score"))
    (Reached(time_s=2.0, by_end=False), None)
    """
    if not record.finished:
        return None
    if target.metric == "loss":
        return _first([(time_s, -loss) for time_s, loss in loss_curve(record)], -target.value)
    sign = 1.0 if record.better == "higher" else -1.0
    found = _first([(time_s, sign * score) for time_s, score in record.scores], sign * target.value)
    if found is None and record.score is not None and sign * record.score >= sign * target.value:
        return Reached(record.wall_s, by_end=True)
    return found


def loss_curve(record: RunRecord) -> list[tuple[float, float]]:
    """Return times and training losses, smoothed over a few moments."""
    known = [(moment.time_s, moment.loss) for moment in record.history if moment.loss is not None]
    return list(zip((time_s for time_s, _ in known), smoothed([loss for _, loss in known]), strict=True))


def _first(curve: Sequence[tuple[float, float]], value: float) -> Reached | None:
    return next((Reached(time_s) for time_s, height in curve if height >= value), None)

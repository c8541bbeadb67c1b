"""The history of a run: the progress of all workers together, on one even grid of times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOMENTS = 60
SMOOTHED = 5  # moments: a step's loss is that of one batch, and jumps


@dataclass(frozen=True)
class Reading:
    """The progress of one worker by ``time_s``."""

    time_s: float
    rank: int
    samples: int
    bytes_sent: int
    loss: float | None = None


@dataclass(frozen=True)
class Moment:
    """The progress of all workers together by ``time_s``; the loss is the mean of their latest."""

    time_s: float
    samples: float
    bytes_sent: float
    loss: float | None = None


def on_grid(readings: Iterable[Reading], wall_s: float, moments: int = MOMENTS) -> tuple[Moment, ...]:
    """Turn readings of the workers, each at its own times, into moments of all of them. Counts are interpolated between
    readings and stay after the last one.

    >>> grid = on_grid([Reading(2.0, 0, 20, 200, 0.5), Reading(4.0, 1, 40, 0, 0.7)], wall_s=4.0, moments=3)
    >>> [(one.time_s, one.samples, one.bytes_sent, one.loss) for one in grid]
    [(0.0, 0.0, 0.0, None), (2.0, 40.0, 200.0, 0.5), (4.0, 60.0, 200.0, 0.6)]
    """
    import numpy as np

    of_rank: dict[int, list[Reading]] = {}
    for reading in sorted(readings, key=lambda each: each.time_s):
        of_rank.setdefault(reading.rank, []).append(reading)
    if not of_rank or wall_s <= 0:
        return ()
    grid = np.linspace(0.0, wall_s, moments)
    samples, sent = np.zeros(moments), np.zeros(moments)
    losses: list[list[float]] = [[] for _ in grid]
    for rows in of_rank.values():
        times = [0.0, *(row.time_s for row in rows)]
        samples += np.interp(grid, times, [0, *(row.samples for row in rows)])
        sent += np.interp(grid, times, [0, *(row.bytes_sent for row in rows)])
        for moment, latest in zip(losses, np.searchsorted(times, grid, side="right") - 2, strict=True):
            loss = rows[latest].loss if latest >= 0 else None
            if loss is not None and math.isfinite(loss):
                moment.append(loss)
    return tuple(
        Moment(float(at), float(samples[i]), float(sent[i]), sum(losses[i]) / len(losses[i]) if losses[i] else None)
        for i, at in enumerate(grid)
    )


def last_loss(history: Sequence[Moment]) -> float | None:
    """Return the mean loss over the last tenth of the moments.

    >>> last_loss([Moment(0.0, 0, 0), Moment(1.0, 8, 0, 0.75), Moment(2.0, 16, 0, 0.5)])
    0.5
    """
    known = [moment.loss for moment in history if moment.loss is not None]
    tail = known[-max(1, len(known) // 10) :]
    return sum(tail) / len(tail) if tail else None


def smoothed(values: Sequence[float], width: int = SMOOTHED) -> list[float]:
    """Return the mean of each value and those before it, ``width`` in all.

    >>> smoothed([4.0, 2.0, 0.0], width=2)
    [4.0, 3.0, 1.0]
    """
    return [
        sum(values[max(0, i - width + 1) : i + 1]) / len(values[max(0, i - width + 1) : i + 1])
        for i in range(len(values))
    ]

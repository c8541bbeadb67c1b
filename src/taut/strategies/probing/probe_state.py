"""State of a worker that is probed: its step times, codecs and links so far, and the progress of the others."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Protocol

from taut.strategies.api import Heard, Local, Membership, Vector
from taut.strategies.probing.link_measurement import LinkFigures, Measurement

FIRST_STEPS = 4  # not timed: caches are cold, the first lease may be on its way
WIDE = 2.563  # from the 10th to the 90th percentile of a normal distribution, in standard deviations


@dataclass
class StepTimes:
    """Durations and batch sizes of a worker's steps.

    >>> times = StepTimes()
    >>> for end_s in (0.0, 1.0, 2.0, 3.0, 4.0, 4.5, 5.0):
    ...     times.stepped(32, end_s)
    >>> {name: round(value, 1) for name, value in times.figures().items()}
    {'timed': 3.0, 'step': 0.5, 'spread': 0.2, 'batch': 32.0}
    """

    step_s: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    made: int = 0
    ended_s: float | None = None  # end of the last step, if the next follows directly

    def __len__(self) -> int:
        return len(self.step_s)

    def stepped(self, samples: int, now: float) -> None:
        """Note the end of a step on ``samples`` samples."""
        self.made += 1
        if self.made > FIRST_STEPS and self.ended_s is not None:
            self.step_s.append(now - self.ended_s)
            self.batches.append(samples)
        self.ended_s = now

    def interrupted(self) -> None:
        """Note that the time until the next step's end is not that of a step."""
        self.ended_s = None

    def figures(self) -> dict[str, float]:
        found = {"timed": float(len(self))}
        if self.step_s:
            found |= {"step": median(self.step_s), "spread": spread(self.step_s), "batch": float(median(self.batches))}
        return found


@dataclass(frozen=True, slots=True)
class CodecFigures:
    """Medians of a codec's times, and its mean bits."""

    encode_s_per_element: float
    absorb_s_per_byte: float
    bits_per_element: float


class Shadow(Protocol):
    """One codec on a copy of the weights. ``nbytes``: of its payloads so far."""

    name: str
    nbytes: list[int]

    def follow(self, x: Vector) -> None:
        """Follow the worker's step, to x."""

    def figures(self) -> CodecFigures | None:
        """Return the figures; None if there were too few steps."""


class Probed(Local, Protocol):
    """A worker whose codecs can be watched."""

    def shadow(self, name: str, workers: int, step_s: float) -> Shadow:
        """Return this codec, on a copy of the present weights; steps take ``step_s``."""


@dataclass
class ProbeState:
    """A worker's state. ``done``: by ready member, the workers to which it has measured its link. ``held``: it waits."""

    local: Probed
    membership: Membership
    times: StepTimes = field(default_factory=StepTimes)
    idle: int = 0  # turns without data, in a row
    shadows: list[Shadow] = field(default_factory=list)
    watched_s: float = 0.0  # when the shadows were made
    codecs: dict[str, CodecFigures] = field(default_factory=dict)
    links: dict[int, LinkFigures] = field(default_factory=dict)
    held: bool = False
    ready: bool = False
    ended: bool = False
    over: bool = False
    complete: bool = False  # over because all links were measured
    done: dict[int, set[int]] = field(default_factory=dict)
    asked: int | None = None  # at the lowest rank: the link that was last asked for
    measurement: Measurement | None = None
    early: list[Heard] = field(default_factory=list)  # of later versions


def spread(durations_s: list[float]) -> float:
    """Return the standard deviation of the logarithm, from the 10th and 90th percentiles: long pauses do not count.

    >>> spread([0.1, 0.1, 0.1]), round(spread([math.exp(0.03 * k) for k in range(101)]), 2)
    (0.0, 0.94)
    """
    if len(durations_s) < 2 or min(durations_s) <= 0.0:
        return 0.0
    tenths = quantiles(durations_s, n=10, method="inclusive")
    return math.log(tenths[-1] / tenths[0]) / WIDE

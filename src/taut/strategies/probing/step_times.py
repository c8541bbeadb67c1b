"""How long a worker's steps take, from the moments at which they are over: compute and data, nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import median, quantiles

FIRST_STEPS = 4  # not timed: caches are cold, the first lease may be on its way
WIDE = 2.563  # from the 10th to the 90th percentile of a normal distribution, in standard deviations


@dataclass
class StepTimes:
    """
    >>> times = StepTimes()
    >>> for end_s in (0.0, 1.0, 2.0, 3.0, 4.0, 4.5, 5.0):
    ...     times.stepped(32, end_s)
    >>> {name: round(value, 1) for name, value in times.figures().items()}
    {'timed': 3.0, 'step': 0.5, 'spread': 0.2, 'batch': 32.0}
    """

    step_s: list[float] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    made: int = 0
    ended_s: float | None = None  # of the last step, if what follows is the next one

    def __len__(self) -> int:
        return len(self.step_s)

    def stepped(self, samples: int, now: float) -> None:
        """A step on ``samples`` samples is over."""
        self.made += 1
        if self.made > FIRST_STEPS and self.ended_s is not None:
            self.step_s.append(now - self.ended_s)
            self.batches.append(samples)
        self.ended_s = now

    def interrupted(self) -> None:
        """What comes next is not the time of a step."""
        self.ended_s = None

    def figures(self) -> dict[str, float]:
        found = {"timed": float(len(self))}
        if self.step_s:
            found |= {"step": median(self.step_s), "spread": spread(self.step_s), "batch": float(median(self.batches))}
        return found


def spread(durations_s: list[float]) -> float:
    """The standard deviation of the logarithm, from the 10th and 90th percentiles: one long pause does not count.

    >>> spread([0.1, 0.1, 0.1]), round(spread([math.exp(0.03 * k) for k in range(101)]), 2)
    (0.0, 0.94)
    """
    if len(durations_s) < 2 or min(durations_s) <= 0.0:
        return 0.0
    tenths = quantiles(durations_s, n=10, method="inclusive")
    return math.log(tenths[-1] / tenths[0]) / WIDE

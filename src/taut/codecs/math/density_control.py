"""Steering a limit by density: double it when too much is sent, halve it when too little.

The limit moves on powers of two, so that quanta stay on the grid. Where elements drift, the density goes as 1 / limit;
where they wander, as 1 / limit^2. One doubling may thus cut it to a quarter, so the band in which nothing is done must be
wider than that, or the limit would swing for ever. After a change the strays need time to settle: halving lets everything
between the new limit and the old be sent at once, doubling brings silence until strays have grown. So the density is not
judged for some steps: more of them each time, since at the start the limit is a guess and later it is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

HIGH = 1.35  # times the target: double
LOW = 0.25  # times the target: halve
FLOOD = 6.0  # times the target: double at once
WATCH = 8  # steps at the start, from which the first limit is derived
SAMPLE = 1 << 16  # elements from which it is derived
FIRST_PATIENCE = 4  # steps
LAST_PATIENCE = 64


@dataclass
class Steering:
    """The state of a steered limit. ``target``: the share of all elements to send per step. A step is one call of
    ``emit``, which may scan only a part of the vector; ``rounds`` counts scans of the whole. ``steps``, ``rounds`` and
    ``sent`` (in sizes of the vector) count from the time when the strays settled after the last change of the limit."""

    target: float
    steps: int = 0
    rounds: float = 0.0
    sent: float = 0.0
    settle_steps: int = 0
    settle_rounds: float = 0.0
    patience: int = FIRST_PATIENCE
    watched: int = 0

    def note(self, sent: int, scanned: int, size: int) -> float:
        """Count a step; return the factor for the limit: 2.0, 0.5 or (nearly always) 1.0.

        >>> steering = Steering(0.01)
        >>> [steering.note(sent, 1000, 1000) for sent in (50, 50, 50, 50, 10, 10)]
        [1.0, 1.0, 1.0, 2.0, 1.0, 1.0]
        """
        if self.settle_steps > 0 or self.settle_rounds > 0.0:
            self.settle_steps -= 1
            self.settle_rounds -= scanned / size
            return 1.0
        self.steps += 1
        self.rounds += scanned / size
        self.sent += sent / size
        if self.rounds < 1.0:
            return 1.0
        density = self.sent / self.steps
        ready = self.steps >= self.patience
        if density > FLOOD * self.target or (ready and density > HIGH * self.target):
            return self._change(2.0)
        if ready and density < LOW * self.target:
            return self._change(0.5)
        if self.steps >= 2 * self.patience and self.rounds >= 2.0:  # forget what is old, slowly
            self.steps, self.rounds, self.sent = self.steps // 2, self.rounds / 2.0, self.sent / 2.0
        return 1.0

    def _change(self, factor: float) -> float:
        self.patience = min(2 * self.patience, LAST_PATIENCE)
        # halving: every element between the new limit and the old is sent when it is scanned next
        self.settle_rounds = 1.0 if factor < 1.0 else 0.0
        self.settle_steps = self.patience // 2 if factor > 1.0 else 0
        self.steps, self.rounds, self.sent = 0, 0.0, 0.0
        return factor


def first_limit(strays: npt.NDArray[np.float32], density: float) -> float:
    """Return a first limit, a power of two, from how far elements strayed in the first ``WATCH`` steps, while nothing was
    sent; 0.0 if none moved. At the target density, about WATCH * density of those that move would have reached it by now.

    >>> first_limit(np.linspace(0, 1, 1000, dtype=np.float32) ** 2, density=0.01)
    1.0
    """
    strays = strays[np.isfinite(strays) & (strays > 0.0)]
    if strays.size == 0:
        return 0.0
    level = float(np.quantile(strays, 1.0 - min(0.5, WATCH * density)))
    return math.ldexp(1.0, round(math.log2(level)))

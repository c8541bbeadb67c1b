"""Remedies for stale pushes: changes that were computed on weights that the server has changed since.

    none   w += d
    rate   w += d / (1 + s)                     s: staleness; Zhang et al. 2016, Jiang et al. 2017
    dc     w += d - l d d (w - w_then)          l = lambda0 / sqrt(mean square of d); Zheng et al. 2017, DC-ASGD-a
    dc-constant                                 l = lambda0 / rate                                        DC-ASGD-c
    agn    w += d / n                           n: local steps in d; Hermans et al. 2018

d is the change that a worker's optimizer made since its last push, w_then the weights that it last pulled. Zheng's
form corrects a gradient, g + lambda g g (w - w_then); with d = -rate g it becomes the one above, and in the adaptive form
the rate cancels. s counts the pushes of others since the worker's pull, divided by the number of workers, as in rounds:
after one push of each other worker it is about 1, however many they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from taut.strategies.api import Vector

KINDS = ("none", "rate", "dc", "dc-constant", "agn")
DECAY = 0.95  # of the mean square
LAMBDA = {"dc": 2.0, "dc-constant": 0.04}  # as in the paper
TINY = 1e-7


@dataclass(frozen=True)
class Lateness:
    """The facts about a push: ``others`` pushed so often since its worker's pull; it holds ``steps`` local steps at
    learning rate ``rate``; ``then`` are the weights of that pull (kept for the dc kinds only)."""

    others: int
    workers: int
    steps: int = 1
    rate: float = 0.0
    then: Vector | None = None

    @property
    def staleness(self) -> float:
        return self.others / max(1, self.workers)


@dataclass
class Remedy:
    """A remedy of ``kind``, as above. ``lambda0`` 0: the paper's. ``mean_square``: of the changes, for the adaptive form.

    >>> change = np.array([0.5, -1.0], np.float32)
    >>> Remedy("rate").apply(change, np.zeros(2, np.float32), Lateness(others=3, workers=3)).tolist()
    [0.25, -0.5]
    >>> now, then = np.array([1.0, 1.0], np.float32), np.zeros(2, np.float32)
    >>> late = Lateness(others=3, workers=3, rate=0.1, then=then)
    >>> Remedy("dc-constant", 0.04).apply(change, now, late).tolist()  # d - 0.04 / 0.1 * d * d * (w - w_then)
    [0.4000000059604645, -1.399999976158142]
    """

    kind: str = "none"
    lambda0: float = 0.0
    mean_square: Vector | None = field(default=None, repr=False)

    @property
    def compensates(self) -> bool:
        """Return whether the weights of each worker's last pull are needed."""
        return self.kind in LAMBDA

    def apply(self, change: Vector, now: Vector, late: Lateness) -> Vector:
        """Return the vector to add to the weights ``now`` for a worker's ``change``."""
        if self.kind == "rate":
            return change * np.float32(1.0 / (1.0 + late.staleness))
        if self.kind == "agn":
            return change * np.float32(1.0 / max(1, late.steps))
        if not self.compensates or late.then is None:
            return change
        lambda0 = np.float32(self.lambda0 or LAMBDA[self.kind])
        square = change * change
        if self.kind == "dc":
            if self.mean_square is None:
                self.mean_square = square.copy()
            else:
                self.mean_square += np.float32(1.0 - DECAY) * (square - self.mean_square)
            weight = lambda0 / np.sqrt(self.mean_square + np.float32(TINY * TINY))
        elif late.rate > 0.0:
            weight = lambda0 / np.float32(late.rate * max(1, late.steps))
        else:
            return change  # without a learning rate (an idle turn) there is no gradient
        compensated: Vector = change - weight * square * (now - late.then)
        return compensated

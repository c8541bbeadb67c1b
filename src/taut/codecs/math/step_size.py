"""How far a step of the optimizer moves an element: the scale that a limit on strays should follow.

A stray d = w - b changes by the optimizer's steps, and by a codec's own signs. What others send moves w and b alike. So
the change of d from the end of one exchange to the beginning of the next is the optimizer's alone. It is taken from a
sample of the elements, at every exchange at first and at every fourth later, and smoothed as a mean square of the
elements that moved: weight decay alone, of an embedding that the batch has not touched, is no movement.

The first step of all says what kind of optimizer this is. Adam and its relatives divide each gradient by its own size:
their first step is as long for all elements (``evenness`` 1), as are the steps of sign methods; Muon's is close to it.
The gradients themselves, which plain SGD follows, differ by orders of magnitude between elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

SAMPLE = 1 << 12  # elements
CLOSELY = 64  # exchanges that are all measured; then every
SELDOM = 4  # -th
KEEP = 0.9  # of the mean square so far, at every measurement
MOVED = 2.0**-6  # of the largest change: what is less does not count
EVEN = 0.63  # evenness of the first step. Adam begins with 1.0 and had 0.63 to 0.75 later; gradients 0.37 to 0.61


@dataclass
class StepSize:
    """``mean_square`` of the changes, 0 until something has moved. ``evenness`` of the first: m2^2 / (m1 m3), from the
    means of their powers. ``strays``: of the sample, when last looked at; None: they were not."""

    mean_square: float = 0.0
    evenness: float = 0.0
    exchanges: int = 0
    measured: int = 0
    strays: Any = None

    @property
    def normalized(self) -> bool:
        """Return whether the optimizer makes steps of one length, whatever the gradient's."""
        return self.evenness >= EVEN

    @property
    def size(self) -> float:
        """Return the root mean square of what a step changes."""
        return math.sqrt(self.mean_square)

    @property
    def due(self) -> bool:
        """Return whether the next exchange should measure, so that the strays must be kept now."""
        return self.exchanges < CLOSELY or self.exchanges % SELDOM == 0

    def note(self, strays: Any, steps: int = 1) -> None:
        """Count an exchange, and measure: ``strays`` of the sample before it, None if this exchange is not measured.
        Where several ``steps`` were made since the last exchange, one step counts as the root of that many shorter.

        >>> steps = StepSize(strays=np.zeros(3))
        >>> steps.note(np.array([0.5, -0.5, 0.0])); steps.size, steps.normalized
        (0.5, True)
        """
        self.exchanges += 1
        if strays is None or self.strays is None:
            return
        change = np.abs(strays.astype(np.float64) - self.strays)
        largest = float(change.max(initial=0.0))
        if not 0.0 < largest < math.inf:
            return
        change = change[change >= MOVED * largest]
        found = float(np.mean(np.square(change)))
        if not self.measured:
            self.evenness = found**2 / float(np.mean(change) * np.mean(change**3))
        self.measured += 1
        keep = min(KEEP, 1.0 - 1.0 / self.measured)  # the first ones are a plain mean
        self.mean_square = keep * self.mean_square + (1.0 - keep) * found / steps

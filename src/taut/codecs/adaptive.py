"""Steering a limit by density: double it when too much is sent, halve it when too little.

The limit moves on powers of two, so that quanta stay on the grid. Where elements drift, the density goes as 1
/ limit; where they wander, as 1 / limit^2. One doubling may thus cut it to a quarter, so the band in which
nothing is done must be wider than that, or the limit would swing for ever. After a change the strays need
time to settle (halving lets everything between the old limit and the new go at once), so nothing is judged
for a while: a while that grows, since at the start the limit is a guess and later it is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

HIGH = 1.25  # times the target: double
LOW = 0.3  # times the target: halve
FLOOD = 6.0  # times the target: double at once
WATCH = 8  # scans at the start from which the first limit is judged
SAMPLE = 1 << 16  # elements it is judged by
FIRST_PATIENCE = 4.0  # scans of the whole vector
LAST_PATIENCE = 64.0


@dataclass
class Steering:
    """What a steered limit remembers: ``scanned`` and ``sent`` since the last change, in scans of the whole
    vector."""

    target: float
    scanned: float = 0.0
    sent: float = 0.0
    patience: float = FIRST_PATIENCE
    watched: int = 0

    def note(self, sent: int, scanned: int, size: int) -> float:
        """Count a scan; the factor for the limit: 2.0, 0.5 or (nearly always) 1.0.

        >>> steering = Steering(0.01)
        >>> [steering.note(sent, 1000, 1000) for sent in (50, 50, 50, 50, 10, 10)]
        [1.0, 1.0, 1.0, 2.0, 1.0, 1.0]
        """
        self.scanned += scanned / size
        self.sent += sent / size
        if self.scanned < 1.0:
            return 1.0
        density = self.sent / self.scanned
        if density > FLOOD * self.target:
            return self._change(2.0)
        if self.scanned < self.patience:
            return 1.0
        if density > HIGH * self.target:
            return self._change(2.0)
        if density < LOW * self.target:
            return self._change(0.5)
        if self.scanned > 2.0 * self.patience:  # forget the older half, slowly
            self.scanned, self.sent = self.scanned / 2.0, self.sent / 2.0
        return 1.0

    def _change(self, factor: float) -> float:
        self.scanned = self.sent = 0.0
        self.patience = min(2.0 * self.patience, LAST_PATIENCE)
        return factor


def first_limit(strays: npt.NDArray[np.float32], density: float) -> float:
    """A first limit from how far elements strayed in the first ``WATCH`` scans, while nothing was sent; 0.0
    if none moved. At the density sought, about WATCH * density of them would have reached it by now; half as
    many, since steps at the start are larger than later ones. To the nearest power of two.

    >>> first_limit(np.linspace(0, 1, 1000, dtype=np.float32) ** 2, density=0.01)
    1.0
    """
    strays = strays[np.isfinite(strays) & (strays > 0.0)]
    if strays.size == 0:
        return 0.0
    level = float(np.quantile(strays, 1.0 - min(0.5, WATCH * density / 2.0)))
    return math.ldexp(1.0, round(math.log2(level)))

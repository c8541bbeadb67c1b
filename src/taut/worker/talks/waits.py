"""How long a worker's waits for the others take, as a rule, and when one takes too long."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from taut.worker.node.node import LONGER

HELD_UP_S = 0.25  # at least, before a round counts as held up: a busy machine takes so long at times
LAST = 64
MOST = 0.9  # of them: some were long for a reason of their own (a start, a validation), and would stay in mind for long


class Waits:
    """The last ones, in seconds, of turns with data.

    >>> Waits([0.5] * 18 + [3.0, 5.0]).too_long_s(), Waits([0.001]).too_long_s(), Waits().too_long_s()
    (2.0, 0.25, inf)
    """

    def __init__(self, taken_s: Iterable[float] = ()) -> None:
        self._last: deque[float] = deque(taken_s, maxlen=LAST)

    def add(self, taken_s: float) -> None:
        self._last.append(taken_s)

    def too_long_s(self, rounds: int = 0) -> float:
        """Several times what nine in ten took. Never, before anything is known: no wait, nor one of the ``rounds`` that
        came to their end without any."""
        if not self._last and not rounds:
            return math.inf
        usual_s = sorted(self._last)[int(MOST * (len(self._last) - 1))] if self._last else 0.0
        return max(HELD_UP_S, LONGER * usual_s)

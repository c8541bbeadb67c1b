"""How long a worker's waits for the others take, as a rule, and when one takes too long."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from taut.worker.comm.comm_thread import LONGER

HELD_UP_S = 0.25  # at least, before a round counts as held up: a busy machine takes so long at times
LAST = 64
FEW = 4  # that tell how far they are apart
MOST = 0.9  # of them: some were long for a reason of their own (a start, a validation), and would stay in mind for long


class AdaptiveTimeout:
    """The last ones, in seconds, of turns with data. ``steady``: they last as long as something that others do, again and
    again, so that one which takes longer than their spread explains is known to be late.

    >>> seen = AdaptiveTimeout([0.5] * 18 + [3.0, 5.0])
    >>> seen.too_long_s(), AdaptiveTimeout([0.001]).too_long_s(), AdaptiveTimeout().too_long_s()
    (2.0, 0.25, inf)
    >>> AdaptiveTimeout([2.0] * 20, steady=True).too_long_s(), AdaptiveTimeout([2.0] * 20).too_long_s()
    (2.25, 8.0)
    """

    def __init__(self, taken_s: Iterable[float] = (), steady: bool = False) -> None:
        self._last: deque[float] = deque(taken_s, maxlen=LAST)
        self._steady = steady

    def add(self, taken_s: float) -> None:
        self._last.append(taken_s)

    def too_long_s(self, rounds: int = 0) -> float:
        """Return several times what nine in ten waits took, or, of ``steady`` ones, that and several times how far they
        are from each other as a rule. Infinite before anything is known: no wait, nor one of the ``rounds`` that came to
        their end without any (which says nothing of ``steady`` ones: there is always a wait in them)."""
        if not self._last and (self._steady or not rounds):
            return math.inf
        taken = sorted(self._last)
        usual_s = taken[int(MOST * (len(taken) - 1))] if taken else 0.0
        if self._steady:
            apart_s = sum(abs(each - taken[len(taken) // 2]) for each in taken) / len(taken)
            apart_s = apart_s if len(taken) >= FEW else usual_s / LONGER
            return min(usual_s + max(HELD_UP_S, LONGER * apart_s), max(HELD_UP_S, LONGER * usual_s))
        return max(HELD_UP_S, LONGER * usual_s)

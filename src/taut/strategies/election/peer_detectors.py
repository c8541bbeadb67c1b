"""A worker's own eye on the others, while the supervisor, whose it is, is late or gone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from taut.core.failure_detector import HEARTBEAT_S, Detector


class PeerDetectors:
    """A detector for each of the others, from the moment at which there is reason to watch them.

    >>> lookout = PeerDetectors()
    >>> lookout.watch({1, 2}, 0.0, 0.5, 0.0, [500] * 64)
    >>> for beat in range(1, 20):
    ...     lookout.beat(1, 0.5 * beat)
    >>> lookout.lost(9.5)
    {2}
    """

    def __init__(self) -> None:
        self._detectors: dict[int, Detector] = {}

    def watch(self, others: Iterable[int], now: float, interval_s: float, late_s: float, rhythm: Sequence[int]) -> None:
        """These, whose words come every ``interval_s``. Their rhythm, before it is known: that of the supervisor's pulses
        (``Detector.kept``), which come over the same network. ``late_s``: so much later than it meant to does this worker
        look; if it was away itself, what it was told meanwhile is not read yet."""
        kept = [round(interval_s / HEARTBEAT_S * interval) for interval in rhythm]
        for rank in others:
            if rank not in self._detectors:
                self._detectors[rank] = Detector.restored(now, kept)
        if interval_s < late_s < math.inf:
            for detector in self._detectors.values():
                detector.pause(late_s, now)

    def beat(self, rank: int, now: float) -> None:
        """Its word came, as it does in every interval."""
        if rank in self._detectors:
            self._detectors[rank].beat(now)

    def seen(self, rank: int, now: float) -> None:
        """Something of it came."""
        if rank in self._detectors:
            self._detectors[rank].seen(now)

    def lost(self, now: float) -> set[int]:
        """Who must be taken for gone."""
        return {rank for rank, detector in self._detectors.items() if detector.suspects(now)}

    def keep(self, ranks: Iterable[int]) -> None:
        """Nobody but these matters any more."""
        kept = set(ranks)
        self._detectors = {rank: detector for rank, detector in self._detectors.items() if rank in kept}

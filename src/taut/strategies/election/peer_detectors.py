"""Failure detectors for the other workers, used while the supervisor, whose job this is, cannot be reached."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from taut.core.failure_detector import HEARTBEAT_S, Detector


class PeerDetectors:
    """A failure detector for each other worker, from the moment at which the supervisor is late.

    >>> detectors = PeerDetectors()
    >>> detectors.watch({1, 2}, 0.0, 0.5, 0.0, [500] * 64)
    >>> for beat in range(1, 20):
    ...     detectors.beat(1, 0.5 * beat)
    >>> detectors.lost(9.5)
    {2}
    """

    def __init__(self) -> None:
        self._detectors: dict[int, Detector] = {}

    def watch(self, others: Iterable[int], now: float, interval_s: float, late_s: float, rhythm: Sequence[int]) -> None:
        """Watch these workers, whose messages come every ``interval_s``. Their intervals, before they are known, are
        those of the supervisor's pulses (``Detector.kept``), over the same network. ``late_s``: how late this worker
        looks; if it was away itself, messages that came meanwhile are not read yet."""
        kept = [round(interval_s / HEARTBEAT_S * interval) for interval in rhythm]
        for rank in others:
            if rank not in self._detectors:
                self._detectors[rank] = Detector.restored(now, kept)
        if interval_s < late_s < math.inf:
            for detector in self._detectors.values():
                detector.pause(late_s, now)

    def beat(self, rank: int, now: float) -> None:
        if rank in self._detectors:
            self._detectors[rank].beat(now)

    def seen(self, rank: int, now: float) -> None:
        if rank in self._detectors:
            self._detectors[rank].seen(now)

    def lost(self, now: float) -> set[int]:
        """Return the workers that must be taken for dead."""
        return {rank for rank, detector in self._detectors.items() if detector.suspects(now)}

    def keep(self, ranks: Iterable[int]) -> None:
        kept = set(ranks)
        self._detectors = {rank: detector for rank, detector in self._detectors.items() if rank in kept}

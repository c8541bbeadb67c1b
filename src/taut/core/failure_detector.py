"""Phi-accrual failure detection: how improbable is this silence, given the intervals of this worker's heartbeats?

Hayashibara, Défago, Yared, Katayama: The phi accrual failure detector, SRDS 2004.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

HEARTBEAT_S = 0.5  # between two of a worker's heartbeats: a rate, not a timeout


@dataclass(frozen=True, slots=True)
class DetectorSettings:
    """Settings of a detector. None of these is a time limit: the limit follows the intervals that were seen.

    The window begins with ``prior_weight`` intervals of ``prior_s``, which real ones replace: four times the rate, since
    imports hold the interpreter in a worker's first seconds (1.6 s were seen with four workers on two cores, 6.5 s where
    twenty processes shared them). ``floor``: the least deviation, as a share of the mean: a punctual worker may
    still be hit by a long garbage collection or a loaded machine, and a wrong eviction costs more than a late
    one. ``closed_beats``: heartbeats that a worker without connection has to connect again.
    """

    threshold: float = 16.0
    window: int = 64
    floor: float = 1.0
    prior_s: float = 4 * HEARTBEAT_S
    prior_weight: int = 4
    closed_beats: float = 3.0


def phi(silence_s: float, mean_s: float, deviation_s: float) -> float:
    """Return -log10 P(an interval is longer than ``silence_s``), for normally distributed intervals.

    >>> round(phi(0.5, 0.5, 0.1), 3)
    0.301
    >>> phi(3.0, 0.5, 0.5) < 8 < phi(4.0, 0.5, 0.5)
    True
    """
    z = (silence_s - mean_s) / deviation_s
    tail = 0.5 * math.erfc(z / math.sqrt(2.0))
    if tail > 1e-300:
        return -math.log10(tail)
    # erfc underflows beyond z = 37; use the leading term of its expansion: exp(-z^2/2) / (z sqrt(2 pi))
    return (z * z / 2.0 + math.log(z * math.sqrt(2.0 * math.pi))) / math.log(10.0)


class Detector:
    """Failure detector for one worker. It learns from heartbeats; other messages only show that the worker lives.

    >>> detector = Detector(now=0.0)
    >>> for i in range(1, 60):
    ...     _ = detector.beat(0.5 * i)
    >>> detector.suspects(29.5 + 2.0), detector.suspects(29.5 + 6.0)
    (False, True)

    The connection of a process that ends is closed, so its silence need not be as long.

    >>> detector.closed(29.6)
    >>> detector.abandoned(31.0), detector.abandoned(31.2), detector.suspects(31.2)
    (False, True, False)
    """

    def __init__(self, now: float, settings: DetectorSettings | None = None) -> None:
        self.settings = settings or DetectorSettings()
        guess = [self.settings.prior_s] * self.settings.prior_weight
        self._intervals: deque[float] = deque(guess, maxlen=self.settings.window)
        self._last_beat = now
        self._last_seen = now
        self._closed_s: float | None = None  # since when it has no connection
        self._rhythm: tuple[float, float] | None = None  # mean and deviation, if known for the present intervals

    def beat(self, now: float) -> bool:
        """Note a heartbeat. Return whether it was so late (three deviations) that the connection may have been broken.

        An interval counts for at least a half of the mean: short ones are of heartbeats that were held up together.
        """
        mean_s, deviation_s = self.rhythm()
        interval_s = now - self._last_beat
        self._intervals.append(max(interval_s, mean_s / 2))
        self._rhythm = None
        self._last_beat = now
        self.seen(now)
        return interval_s > mean_s + 3 * deviation_s

    def seen(self, now: float) -> None:
        """Note any message, which shows that there is a connection."""
        self._last_seen = max(self._last_seen, now)
        self._closed_s = None

    def closed(self, now: float) -> None:
        """Note that the connection was closed, by the worker or in between."""
        self._closed_s = now

    def pause(self, seconds: float, now: float) -> None:
        """Discount a time in which this process itself was stopped or asleep: it was no silence."""
        self._last_beat = min(now, self._last_beat + seconds)
        self._last_seen = min(now, self._last_seen + seconds)
        if self._closed_s is not None:
            self._closed_s = min(now, self._closed_s + seconds)

    def kept(self) -> list[int]:
        """Return the learnt intervals, in milliseconds, for ``restored``."""
        return [round(1e3 * interval) for interval in self._intervals]

    @classmethod
    def restored(cls, now: float, kept: Sequence[int], settings: DetectorSettings | None = None) -> Detector:
        """Return a detector with these intervals, for a worker that counts as seen ``now``.

        >>> detector = Detector.restored(100.0, [500] * 60)
        >>> detector.suspects(102.0), detector.suspects(106.0)
        (False, True)
        """
        detector = cls(now, settings)
        if kept:
            detector._intervals.clear()
            detector._intervals.extend(interval / 1e3 for interval in kept)
            detector._rhythm = None
        return detector

    def rhythm(self) -> tuple[float, float]:
        """Return mean and deviation of the intervals, in seconds."""
        if self._rhythm is None:
            self._rhythm = self._measured()
        return self._rhythm

    def _measured(self) -> tuple[float, float]:
        count = len(self._intervals)
        mean_s = math.fsum(self._intervals) / count
        variance = math.fsum((interval - mean_s) ** 2 for interval in self._intervals) / count
        return mean_s, max(math.sqrt(variance), self.settings.floor * mean_s)

    def silence_s(self, now: float) -> float:
        return max(0.0, now - self._last_seen)

    def phi(self, now: float) -> float:
        """Return the suspicion now."""
        return phi(self.silence_s(now), *self.rhythm())

    def suspects(self, now: float) -> bool:
        """Return whether the worker must be taken for dead."""
        return self.phi(now) > self.settings.threshold

    @property
    def is_closed(self) -> bool:
        """Return whether the worker lost its connection, and has not connected again."""
        return self._closed_s is not None

    def abandoned(self, now: float) -> bool:
        """Return whether the connection has been closed for three usual intervals (the median, which one stall does
        not change)."""
        if self._closed_s is None:
            return False
        usual_s = max(HEARTBEAT_S, statistics.median(self._intervals))
        return now - self._closed_s > self.settings.closed_beats * usual_s

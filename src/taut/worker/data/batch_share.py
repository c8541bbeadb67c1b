"""A worker's share of the global batch, by the speed of its computing. Pure.

    target_i = G v_i / sum_j v_j          v: samples per second of computing, without waiting
    share_i <- share_i + STEP (target_i - share_i)

The sum of speeds is that of the same round at all workers, and so is STEP: shares that add up to G go on doing so.
Steps of equal length are the fixed point, also where part of a step's time does not depend on its samples. Where workers
come or go, or a speed is known for the first time, all take their targets at once. A worker whose speed is not known yet
counts as an average one. The speed is the median of the last steps, so that one that stalls changes nothing.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median

from taut.strategies.allreduce.round_speeds import RoundSpeeds

LEAST = 2.0  # samples of a worker, where there are enough: batch norm cannot train on one
STEP = 0.2  # of the way to the target, in a round
MEASURED = 5  # steps that the speed is the median of
ENOUGH = 3  # of them, for a speed to be known
WARM_UP = 1  # steps that allocate and compile


class BatchShare:
    """The share of one worker, of ``workers`` that share ``global_batch`` samples.

    >>> share = BatchShare(90, workers=2)
    >>> share.size
    45
    >>> for _ in range(4): share.measured(samples=10, seconds=1.0)
    >>> share.speed
    10.0
    >>> share.follow(RoundSpeeds(total=30.0, known=2, workers=2, own=share.speed)); share.size
    30
    """

    def __init__(self, global_batch: int, workers: int) -> None:
        self.global_batch = global_batch
        self.exact = global_batch / max(1, workers)  # the share before it is rounded
        self._measured: deque[float] = deque(maxlen=MEASURED)
        self._skip = WARM_UP
        self._met = (workers, 0.0)  # the workers of the last round, and how many of them were known

    @property
    def size(self) -> int:
        """Return the samples of the next batch."""
        return min(self.global_batch, max(1, round(self.exact)))

    @property
    def speed(self) -> float:
        """Return the samples per second of computing; 0 while that is not known."""
        return median(self._measured) if len(self._measured) >= ENOUGH else 0.0

    def measured(self, samples: int, seconds: float) -> None:
        """Note how long the computing of a batch took."""
        if self._skip:
            self._skip -= 1
        elif samples > 0 and seconds > 0.0:
            self._measured.append(samples / seconds)

    def follow(self, round: RoundSpeeds) -> None:
        """Move towards this worker's part of the speeds of a round."""
        speed = round.own
        met, self._met = self._met, (round.workers, round.known)
        if round.workers < 1 or not (math.isfinite(round.total) and math.isfinite(speed)):
            return
        target = self.global_batch / round.workers
        if speed > 0.0 and 0 < round.known <= round.workers and round.total > 0.0:
            target *= speed * round.known / round.total
        least = LEAST if self.global_batch >= LEAST * round.workers else 1.0
        target = min(self.global_batch, max(least, target))
        self.exact = target if met != self._met else self.exact + STEP * (target - self.exact)

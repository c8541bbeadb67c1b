"""How far replicas stray where only time is simulated: every step moves a worker's stand-in by noise, as steps on
different samples do, and the strategy's own mixing pulls them together again.

    distance = root mean square of (x_i - mean of x), per element, in units of one step's noise

It is looked at once, when nine tenths of all steps are made. What two steps have in common does not pull replicas apart,
so this is the part of training that matters for consensus; how large it is beside the weights is the model's affair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from taut.simulator.models.rng import Rng

if TYPE_CHECKING:
    from collections.abc import Mapping

    from taut.simulator.timing.method_worker import MethodWorker

WHEN = 0.9  # of all steps


class Noise:
    """``steps``: of all workers together."""

    def __init__(self, seed: int, steps: int) -> None:
        self.distance = 0.0
        self._seed, self._left = seed, max(1, round(WHEN * steps))
        self._dice: dict[int, Rng] = {}

    def stepped(self, worker: MethodWorker, workers: Mapping[int, MethodWorker]) -> None:
        """Move the worker's vector by the noise of one step."""
        dice = self._dice.get(worker.rank)
        if dice is None:
            dice = self._dice[worker.rank] = Rng(self._seed, "noise", worker.rank)
        x = worker.local.x
        x += np.array([dice.normal() for _ in range(len(x))], np.float32)
        self._left -= 1
        if self._left == 0:
            xs = np.stack([one.local.x for one in workers.values() if one.alive]).astype(np.float64)
            self.distance = float(np.sqrt(np.mean((xs - xs.mean(axis=0)) ** 2)))

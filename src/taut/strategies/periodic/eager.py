"""Eager updates for ``diloco``: a worker steps with its own change at once, and with the others' a round later.

    D_i    =  start_i - x_i                                 the outer gradient of the worker's H steps
    u_i    <- mu u_i + D_i / p                              p workers
    x_i    <- theta - eta (D_i / p + mu u_i);   start_i <- x_i

theta and its momentum are those of ``diloco``, common, and include all rounds but the one that has just begun. That round
goes on while the worker trains its next H steps; no worker waits for it unless it takes longer. The second term is the
worker's own part of what theta lacks: its last D_i, and those before with the momentum that theta does not have yet.

In the paper each worker has an outer optimizer of its own, to which it gives D_i / p plus the others' parts of the round
before. An outer step is linear in its gradients: theta - eta (D_i / p + mu u_i) is where that optimizer would be (a test
shows it). Kept apart, theta stays common to the last bit, whoever comes and goes. Two vectors more per worker, u and
start.
Paper: Kale, Douillard, Donchev 2025, "Eager updates for overlapped communication and computation in DiLoCo".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut.strategies.local import Vector


@dataclass
class EagerView:
    """One worker's point beside theta. ``start``: where its last H steps began; ``momentum``: u.

    >>> view = EagerView(np.float32([1.0]), np.float32([0.0]))
    >>> x, theta = np.float32([0.0]), np.float32([1.0])
    >>> view.contribution(x, theta).tolist()
    [0.0]
    >>> view.advance(x, theta, rate=1.0, decay=0.5, workers=2)
    >>> x.tolist(), view.momentum.tolist()  # D = 1, of which half counts
    ([0.25], [0.5])
    """

    start: Vector
    momentum: Vector

    def contribution(self, x: Vector, theta: Vector) -> Vector:
        """Return theta - D, of which the mean over all workers is made."""
        values: Vector = x - self.start
        values += theta
        return values

    def advance(self, x: Vector, theta: Vector, rate: float, decay: float, workers: int) -> None:
        """Move x to where the next H steps begin."""
        change = (self.start - x) / np.float32(workers)
        self.momentum *= np.float32(decay)
        self.momentum += change
        change += np.float32(decay) * self.momentum
        change *= np.float32(rate)
        np.subtract(theta, change, out=x)
        self.start[:] = x

    def settle(self, x: Vector, theta: Vector) -> None:
        """Set x to theta, which lacks nothing any more."""
        x[:] = theta
        self.start[:] = theta
        self.momentum[:] = 0.0

"""The outer step of ``diloco``: Nesterov momentum along the mean change."""

from __future__ import annotations

import numpy as np

from taut.strategies.local import Vector


def nesterov(theta: Vector, momentum: Vector, gradient: Vector, rate: float, decay: float) -> None:
    """Set m <- mu m + D; theta <- theta - eta (D + mu m), in place (``gradient`` too).

    >>> theta, momentum = np.float32([1.0]), np.float32([0.0])
    >>> nesterov(theta, momentum, np.float32([0.5]), rate=1.0, decay=0.5)
    >>> theta.tolist(), momentum.tolist()
    ([0.25], [0.5])
    """
    momentum *= np.float32(decay)
    momentum += gradient
    gradient += np.float32(decay) * momentum
    gradient *= np.float32(rate)
    theta -= gradient

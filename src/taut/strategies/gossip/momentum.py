"""Two remedies for data that differs between workers: quasi-global momentum, and gradient tracking.

Local momentum accumulates a worker's own gradients; where workers see different data this pulls their models apart. Both
remedies change the gradient before the optimizer sees it (``Method.shape_gradient``), and use the mixed weights after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from taut.errors import Misuse
from taut.strategies.api import Vector


@dataclass
class QuasiGlobalMomentum:
    """The momentum follows the direction in which the *mixed* weights move, which neighbours nearly agree on.

        step with  g + mu m        then mix        m <- mu m + (1 - mu) (x_old - x_new) / rate

    ``x``: the weights at the start. The optimizer must have no momentum of its own (``check_optimizer``).
    Paper: Lin et al. 2021, "Quasi-global momentum: accelerating decentralized deep learning on heterogeneous data".

    >>> memory = QuasiGlobalMomentum(np.zeros(1, np.float32), mu=0.5)
    >>> memory.mixed(np.full(1, -0.2, np.float32), rate=0.1)
    >>> gradient = np.ones(1, np.float32); memory.shape(gradient); float(gradient[0])
    1.5
    """

    x: Vector
    mu: float = 0.9
    m: Vector = field(init=False)

    def __post_init__(self) -> None:
        self.x = self.x.copy()
        self.m = np.zeros_like(self.x)

    def shape(self, gradient: Vector) -> None:
        """Add the momentum to the gradient, in place."""
        gradient += np.float32(self.mu) * self.m

    def mixed(self, x: Vector, rate: float) -> None:
        """Update the momentum after the step and the mixing. A turn without a step (rate 0) has no direction."""
        if rate > 0.0:
            self.m *= np.float32(self.mu)
            self.m += np.float32((1.0 - self.mu) / rate) * (self.x - x)
        self.x[:] = x


@dataclass
class GradientTracking:
    """y follows the mean of all workers' gradients: it is mixed like x, and each adds the change of its own gradient.

        y_i <- y_i + g_new - g_old        step with y_i        y_i <- sum_j W_ij y_j

    so that sum_i y_i = sum_i g_i at all times.
    Paper: Pu and Nedic 2021, "Distributed stochastic gradient tracking methods"; Di Lorenzo and Scutari 2016.

    >>> tracking = GradientTracking(size=1)
    >>> gradient = np.full(1, 2.0, np.float32); tracking.shape(gradient); float(gradient[0])
    2.0
    """

    size: int
    y: Vector = field(init=False)
    gradient: Vector = field(init=False)

    def __post_init__(self) -> None:
        self.y = np.zeros(self.size, np.float32)
        self.gradient = np.zeros(self.size, np.float32)

    def shape(self, gradient: Vector) -> None:
        """Replace the gradient by y, in place."""
        self.y += gradient - self.gradient
        self.gradient[:] = gradient
        gradient[:] = self.y

    def restart(self) -> None:
        """Reset y to the own gradient, so that the sums agree again: the members have changed."""
        self.y[:] = self.gradient


def check_optimizer(given: str, optimizer: str, settings: Mapping[str, Any]) -> None:
    """Raise ``Misuse`` for an optimizer with momentum, known by its parameter group's settings (``momentum`` above 0,
    or ``betas``): two momenta would count every step twice, and (x_old - x_new) / rate would be no gradient.

    >>> check_optimizer("dpsgd:momentum=quasi-global", "SGD", {"lr": 0.1, "momentum": 0.9})
    Traceback (most recent call last):
    taut.errors.Misuse: dpsgd:momentum=quasi-global with SGD(momentum=0.9): expected an optimizer without momentum of \
its own; try SGD(momentum=0): the strategy adds the momentum
    """
    if settings.get("by_hand"):
        given = f"{given} with weights that are updated by hand"
        raise Misuse(given, "an optimizer with a learning rate, by which steps are divided", "take torch.optim.SGD")
    memory = {name: settings[name] for name in ("momentum", "betas") if settings.get(name)}
    if memory:
        written = ", ".join(f"{name}={value}" for name, value in memory.items())
        remedy = "try SGD(momentum=0): the strategy adds the momentum"
        raise Misuse(f"{given} with {optimizer}({written})", "an optimizer without momentum of its own", remedy)

"""Learning rates that are scaled for one step of an optimizer, and are the script's own again after it."""

from __future__ import annotations

from typing import Any

import torch


class ScaledRates:
    """The learning rates of ``optimizer``. A scheduler, ``state_dict`` and checkpoints see them unscaled.

    >>> sgd = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    >>> rates = ScaledRates(sgd)
    >>> rates.scale(0.5); sgd.param_groups[0]["lr"]
    0.05
    >>> rates.restore(); sgd.param_groups[0]["lr"]
    0.1
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._own: list[Any] = []  # the script's, while others are set

    def scale(self, by: float) -> None:
        """Scale the rates of all groups until ``restore``. By 1, nothing is touched."""
        self.restore()  # of a step that ended with an error
        if by == 1.0:
            return
        for group in self._optimizer.param_groups:
            lr = group["lr"]
            self._own.append(lr.clone() if isinstance(lr, torch.Tensor) else lr)
            if isinstance(lr, torch.Tensor):
                lr.mul_(by)  # in place: a captured graph reads it there
            else:
                group["lr"] = lr * by

    def restore(self) -> None:
        """Give the script its own rates back."""
        if not self._own:
            return
        own, self._own = self._own, []
        for group, lr in zip(self._optimizer.param_groups, own, strict=False):
            if isinstance(lr, torch.Tensor):
                group["lr"].copy_(lr)
            else:
                group["lr"] = lr

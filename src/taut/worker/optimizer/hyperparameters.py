"""The numbers in an optimizer's parameter groups: schedulers move them, and all replicas must agree on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

DIGITS = 6  # significant digits of an agreed number: sums of float32 have no more


class Hyperparameters:
    """Reads and sets all finite numbers in the groups of ``optimizer``: rates, momentum, betas, weight decay, ...

    The list of numbers is fixed here, so that all workers exchange as many. The first is the first learning rate.

    >>> adam = torch.optim.Adam([torch.zeros(1)], lr=0.1, betas=(0.9, 0.999))
    >>> own = Hyperparameters(adam)
    >>> own.read()
    [0.1, 0.9, 0.999, 1e-08, 0.0]
    >>> own.impose([0.05, 0.8, 0.999, 1e-8, 0.0]); adam.param_groups[0]["betas"]
    (0.8, 0.999)
    >>> own.restore(); own.read()[:2]
    [0.1, 0.9]
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._own: list[dict[str, Any]] | None = None  # while the agreed numbers are set
        self._entries: list[tuple[int, str, int | None]] = []
        for at, group in enumerate(optimizer.param_groups):
            for name in ["lr", *(name for name in group if name not in ("lr", "params"))]:
                value = group.get(name)
                if isinstance(value, tuple | list):
                    self._entries += [(at, name, index) for index, each in enumerate(value) if _is_number(each)]
                elif _is_number(value):
                    self._entries.append((at, name, None))

    def read(self) -> list[float]:
        """Return the numbers as the script has set them."""
        groups = self._optimizer.param_groups
        return [float(_part(groups[at][name], index)) for at, name, index in self._entries]

    def scaled(self, numbers: Sequence[float], by: float) -> Sequence[float]:
        """Return these numbers, with the learning rates scaled.

        >>> Hyperparameters(torch.optim.SGD([torch.zeros(1)], lr=0.1, momentum=0.9)).scaled([0.1, 0.9, 0.0, 0.0], 0.5)
        [0.05, 0.9, 0.0, 0.0]
        """
        if by == 1.0:
            return numbers
        return [
            number * by if name == "lr" else number for (_, name, _), number in zip(self._entries, numbers, strict=True)
        ]

    def impose(self, numbers: Sequence[float]) -> None:
        """Set these numbers until ``restore``, rounded: the last bits of a sum must change nothing."""
        groups = self._optimizer.param_groups
        if self._own is None:
            self._own = [{name: _copied(value) for name, value in group.items() if name != "params"} for group in groups]
        for (at, name, index), number in zip(self._entries, numbers, strict=True):
            group, rounded = groups[at], float(f"{number:.{DIGITS}g}")
            if float(_part(group[name], index)) == rounded:
                continue  # a whole number stays one
            if index is not None:
                group[name] = type(group[name])([*group[name][:index], rounded, *group[name][index + 1 :]])
            elif hasattr(group[name], "fill_"):
                group[name].fill_(rounded)
            else:
                group[name] = rounded

    def restore(self) -> None:
        """Give the script its own numbers back, for its schedulers to move."""
        own, self._own = self._own, None
        for group, settings in zip(self._optimizer.param_groups, own or [], strict=False):
            for name, value in settings.items():
                if hasattr(group[name], "fill_"):
                    group[name].copy_(value)
                else:
                    group[name] = value


def _is_number(value: Any) -> bool:
    if hasattr(value, "fill_"):  # a tensor: learning rates may be
        return bool(value.numel() == 1 and value.is_floating_point())
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _part(value: Any, index: int | None) -> Any:
    return value if index is None else value[index]


def _copied(value: Any) -> Any:
    return value.clone() if hasattr(value, "fill_") else value

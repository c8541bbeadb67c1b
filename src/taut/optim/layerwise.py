"""The common base of LARS, LAMB and Muon: each tensor's step is scaled by the norm of its own weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from taut.errors import Misuse


class Layerwise(Optimizer, ABC):
    """An optimizer whose step has a rate of its own for each tensor.

    Every group has ``adapt``: True or False for all of its tensors, or None to let the shape decide. A tensor that is
    not adapted takes the plain rate and no weight decay. By shape, tensors of at most one dimension are not adapted:
    biases and the scales of norm layers, whose own norm says nothing about how far they may move.
    """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self._check({**self.defaults, **param_group})
        super().add_param_group(param_group)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update every parameter that has a gradient; ``closure`` computes the loss anew, with gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        moving = [(p, group) for group in self.param_groups for p in group["params"] if p.grad is not None]
        for parameter, _ in moving:  # before the first update: a refused step changes nothing
            if parameter.grad.layout is not torch.strided:
                raise Misuse(
                    f"a sparse gradient of shape {tuple(parameter.shape)} in {type(self).__name__}",
                    "dense gradients: the rate depends on the norm of the whole tensor",
                    "use nn.Embedding(sparse=False), or torch.optim.SparseAdam for that parameter",
                )
        with torch.no_grad():
            for parameter, group in moving:
                self._update(parameter, parameter.grad, group)
        return loss

    @abstractmethod
    def _update(self, w: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        """Move ``w`` in place by one step along the gradient ``g``."""

    def _check(self, group: dict[str, Any]) -> None:
        """Refuse settings that cannot work; ``group`` is complete."""
        for name in ("lr", "weight_decay"):
            self._expect(group, name, at_least=0.0)
        if group["adapt"] not in (None, True, False):
            raise Misuse(f"adapt={group['adapt']!r}", "True, False, or None to go by shape")

    def _expect(self, group: dict[str, Any], name: str, at_least: float, below: float = float("inf")) -> None:
        if not at_least <= float(group[name]) < below:  # NaN, too, fails this
            bounds = f"a number >= {at_least:g}" + ("" if below == float("inf") else f" and < {below:g}")
            raise Misuse(f"{type(self).__name__} with {name}={group[name]}", bounds)


def adapted(w: Tensor, group: dict[str, Any]) -> bool:
    """Return whether ``w`` gets a rate of its own, and weight decay."""
    return w.ndim > 1 if group["adapt"] is None else bool(group["adapt"])


def norm(x: Tensor) -> Tensor:
    """Return the length of ``x``, on its device; in float32 at least: a norm can be over 65504, where float16 ends."""
    length: Tensor = torch.linalg.vector_norm(x, dtype=torch.promote_types(x.dtype, torch.float32))
    return length


def ratio(top: Tensor, bottom: Tensor, w_norm: Tensor) -> Tensor:
    """Return top / bottom, on the device; 1 where that says nothing (no weights yet, or nothing to divide by).

    >>> one, zero = torch.tensor(1.0), torch.tensor(0.0)
    >>> ratio(one, one * 4, one).item(), ratio(zero, one, zero).item(), ratio(one, zero, one).item()
    (0.25, 1.0, 1.0)
    """
    return torch.where((w_norm > 0) & (bottom > 0), top / bottom, 1.0)

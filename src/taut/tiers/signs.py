"""Features of one bit each: what a device sends upstream is 1/32 of float32.

forward   y = sign(x), with sign(0) = 1
backward  dx = dy where |x| <= 1, else 0        (straight through; Hubara et al. 2016, "Binarized neural networks")
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Signs(nn.Module):
    """An activation with values of -1 and 1.

    >>> x = torch.tensor([0.5, -3.0, 0.0], requires_grad=True)
    >>> y = Signs()(x); y.sum().backward()
    >>> y.tolist(), x.grad.tolist()
    ([1.0, -1.0, 1.0], [1.0, 0.0, 1.0])
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the signs of ``x``."""
        signs: torch.Tensor = _StraightThrough.apply(x)  # type: ignore[no-untyped-call]
        return signs


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x)
        return torch.where(x >= 0, 1.0, -1.0).to(x.dtype)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        (x,) = context.saved_tensors
        return gradients[0] * (x.abs() <= 1)

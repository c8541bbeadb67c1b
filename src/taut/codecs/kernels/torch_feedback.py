"""The arithmetic of error feedback in torch operations, for tensors on any device: the same bits as
``kernels.cpu.feedback``, once ``take`` or ``rest`` came after ``grow`` or ``change``: w = b is done there."""

from __future__ import annotations

import torch
from torch import Tensor


def _scalar(w: Tensor, number: float) -> Tensor:
    return torch.tensor(number, dtype=torch.float32, device=w.device)


@torch.no_grad()
def finite(r: Tensor) -> bool:
    """On a GPU the host would have to wait for the answer: there what was made of r is looked at instead."""
    return r.is_cuda or bool(torch.isfinite(r).all())


@torch.no_grad()
def change(w: Tensor, b: Tensor, share: float) -> Tensor:
    return (w - b) * _scalar(w, share)


@torch.no_grad()
def grow(r: Tensor, w: Tensor, b: Tensor, share: float) -> bool:
    r += (w - b) * _scalar(w, share)
    return finite(r)


@torch.no_grad()
def take(w: Tensor, b: Tensor, r: Tensor, q: Tensor, places: Tensor | None) -> None:
    if places is None:
        r -= q
        b += q
    else:
        r[places] -= q
        b[places] += q
    w.copy_(b)


@torch.no_grad()
def rest(w: Tensor, b: Tensor) -> None:
    w.copy_(b)

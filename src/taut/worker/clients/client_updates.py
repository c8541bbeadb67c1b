"""Updates of clients, and their sum with noise in it: for ``fedavg`` with ``clip`` and ``noise``.

    d = x - x_0        clipped: d min(1, c / |d|)        the sum, in float64, plus N(0, s^2) for each element

The noise is drawn from the system's source of random bytes, by the method of Box and Muller: nobody can draw it again, so
a run with noise has no seed that repeats it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

UNIT = 2.0**-53  # between two neighbours of the uniform numbers


@torch.no_grad()
def clip_update(tensors: Sequence[torch.Tensor], start: Sequence[torch.Tensor], longest: float) -> None:
    """Shorten the update, from ``start`` to ``tensors``, to this norm. One that is short enough keeps its bits.

    >>> x = torch.tensor([3.0, 4.0])
    >>> clip_update([x], [torch.zeros(2)], 10.0); x.tolist()
    [3.0, 4.0]
    >>> clip_update([x], [torch.zeros(2)], 1.0); [round(float(one), 6) for one in x]
    [0.6, 0.8]
    """
    norm = _norm([tensor.double() - first for tensor, first in zip(tensors, start, strict=True)])
    if norm > longest:
        for tensor, first in zip(tensors, start, strict=True):
            tensor.sub_(first).mul_(longest / norm).add_(first)


class NoisySum:
    """The sum of clients' clipped updates. ``tensors``: what clients move, now with the values that each begins with."""

    def __init__(self, tensors: Sequence[torch.Tensor], longest: float) -> None:
        self._tensors, self._longest = tensors, longest
        self._start = [tensor.detach().double() for tensor in tensors]
        self._sums = [torch.zeros_like(start) for start in self._start]

    @torch.no_grad()
    def add(self) -> None:
        """Add what a client has made of the tensors. An update that is not finite counts as none."""
        moved = [tensor.double() - start for tensor, start in zip(self._tensors, self._start, strict=True)]
        norm = _norm(moved)
        if not math.isfinite(norm):
            return
        factor = min(1.0, self._longest / norm) if norm else 1.0
        for total, part in zip(self._sums, moved, strict=True):
            total.add_(part, alpha=factor)

    def with_noise(self, deviation: float) -> npt.NDArray[np.float32]:
        """Return the sum as one vector, each element with noise of this standard deviation."""
        summed = np.concatenate([total.reshape(-1).cpu().numpy() for total in self._sums])
        if deviation:
            summed += deviation * gaussian(len(summed))
        return summed.astype(np.float32)


def gaussian(count: int) -> npt.NDArray[np.float64]:
    """Return so many numbers of the normal distribution, from the system's random bytes.

    >>> bool(abs(gaussian(100_001).std() - 1.0) < 0.05)
    True
    """
    half = (count + 1) // 2
    raw = np.frombuffer(os.urandom(16 * half), np.uint64) >> np.uint64(11)
    first, second = (raw.astype(np.float64) + 0.5).reshape(2, half) * UNIT
    radius = np.sqrt(-2.0 * np.log(first))
    angle = 2.0 * math.pi * second
    found: npt.NDArray[np.float64] = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
    return found


def _norm(parts: Sequence[torch.Tensor]) -> float:
    return math.sqrt(sum(float(part.square().sum()) for part in parts))

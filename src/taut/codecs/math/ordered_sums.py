"""Sums in float64 whose order is fixed, so that every machine gets the same bits.

A block of up to 2^14 numbers is folded: its upper half is added to its lower half, and so on until one number is left.
The sums of the blocks are folded in turn. A length that is no power of two is padded with zeros, which changes nothing. A
fold is made of additions of whole vectors: as fast on a processor or a GPU as a sum in any order.

    fold(x) = fold(x[:h] + x[h:]),    h = half of the least power of two that is not below the length
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taut.codecs.kernels import cpu

Vector = Any

BLOCK = 1 << 14
CHUNK = 1 << 24  # elements that torch widens to float64 in one go


def fold(x: Vector) -> Vector:
    """Return the sums over the last axis of a float64 array (of NumPy or torch) that is at least one long.

    >>> fold(np.array([[1.0, 2.0, 3.0], [1e16, 1.0, -1e16]])).tolist()
    [6.0, 1.0]
    """
    while x.shape[-1] > 1:
        length = x.shape[-1]
        block = min(BLOCK, 1 << (length - 1).bit_length())
        x = _padded(x, -length % block).reshape(*x.shape[:-1], -1, block)
        while block > 1:
            block //= 2
            x = x[..., :block] + x[..., block:]
        x = x[..., 0]
    return x[..., 0]


def _padded(x: Vector, more: int) -> Vector:
    if not more:
        return x
    if isinstance(x, np.ndarray):
        return np.concatenate((x, np.zeros((*x.shape[:-1], more))), axis=-1)
    import torch

    return torch.nn.functional.pad(x, (0, more))


def magnitude_sum(v: Vector) -> float:
    """Return the sum of |v| of a float32 vector that is not empty.

    >>> magnitude_sum(np.array([1.0, -2.5], np.float32))
    3.5
    """
    return _sum(v, squared=False)


def square_sum(v: Vector) -> float:
    """Return the sum of squares of a float32 vector that is not empty; every square is exact.

    >>> square_sum(np.array([3.0, -4.0], np.float32))
    25.0
    """
    return _sum(v, squared=True)


def _sum(v: Vector, squared: bool) -> float:
    if isinstance(v, np.ndarray):
        return float(fold(cpu.signs.block_sums(v, squared)))
    import torch

    sums = []
    for start in range(0, len(v), CHUNK):  # whole blocks, but for the last
        wide = v[start : start + CHUNK].double()
        part = wide * wide if squared else wide.abs()
        sums.append(fold(_padded(part, -len(part) % BLOCK).view(-1, BLOCK)))
    return float(fold(torch.cat(sums)))

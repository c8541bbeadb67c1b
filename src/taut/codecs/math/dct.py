"""The cosine transform (DCT-II, orthonormal) of chunks of 64 x 64, of which only the largest coefficients are kept: for
NumPy and for torch, the same bits.

    X_k = s_k sum_i x_i cos(pi (i + 1/2) k / 64)        s_0 = 1/8, s_k = sqrt(1/32): the inverse is the transpose

By Lee's fast algorithm: half the sums and half the differences, each transformed in turn. That is 11 steps of a few
additions and multiplications per element, less work than a product with the 64 x 64 matrix, and since each is one
rounding in a fixed order, all machines and devices get the same bits; a library's matrix product guarantees none of that.

Lee 1984, "A new algorithm to compute the discrete cosine transform".
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from taut.codecs.compressor import Vector
from taut.codecs.kernels import cpu

POINTS = 64
CHUNK = POINTS * POINTS
LIMIT = 2.0**90  # of a coefficient: sums of 4096 of them, and what the steps make of them, stay finite
GROUP = 1 << 12  # chunks that torch takes at once
DCT_KERNELS = ("dct.compress_chunks", "dct.compress_lines", "dct.expand_chunks", "dct.expand_lines")

HALF_SECANTS = {  # by size: the factors of the differences
    size: np.array([0.5 / math.cos(math.pi * (i + 0.5) / size) for i in range(size // 2)], np.float32)
    for size in (64, 32, 16, 8, 4, 2)
}
SCALES = np.array([0.125, *(math.sqrt(1.0 / 32.0) for _ in range(POINTS - 1))], np.float32)

Found = tuple[Any, Any, Vector]  # indices (uint16) and values (float32) in host memory; their vector, on the device


def keep_chunks(v: Vector, top: int) -> Found:
    """Keep the ``top`` largest coefficients of each chunk of 4096 elements (64 x 64, row by row); index 64 k + l is that
    of frequency k down the columns and l along the rows.

    >>> indices, values, q = keep_chunks(np.ones(4096, np.float32), 1)
    >>> indices.tolist(), values.tolist(), bool((q == 1.0).all())
    ([0], [64.0], True)
    """
    if isinstance(v, np.ndarray):
        found: Found = cpu.dct.compress_chunks(v, top)
        return found
    import torch

    indices, values, q = [], [], torch.empty_like(v)
    for start in range(0, len(v), GROUP * CHUNK):
        x = _forward(_forward(v[start : start + GROUP * CHUNK].view(-1, POINTS, POINTS)).mT).mT.contiguous()
        some_indices, some_values = _select(x.view(-1, CHUNK), top)
        kept = torch.zeros_like(x).view(-1, CHUNK).scatter_(1, some_indices, some_values).view_as(x)
        q[start : start + GROUP * CHUNK] = _inverse(_inverse(kept.mT).mT).reshape(-1)
        indices.append(some_indices.to(torch.int16).view(-1))
        values.append(some_values.view(-1))
    return torch.cat(indices).cpu().numpy().view(np.uint16), torch.cat(values).cpu().numpy(), q


def keep_lines(v: Vector, top: int) -> Found:
    """Keep the ``top`` largest coefficients of each line of 64 elements (at most 64 lines); the last line is padded with
    zeros.

    >>> indices, values, q = keep_lines(np.full(128, 2.0, np.float32), 1)
    >>> indices.tolist(), values.tolist(), len(q)
    ([0, 0], [16.0, 16.0], 128)
    """
    if isinstance(v, np.ndarray):
        some_indices, some_values = cpu.dct.compress_lines(v, top)
        return some_indices, some_values, cpu.dct.expand_lines(some_indices, some_values, top, v.size)
    import torch

    lines = torch.nn.functional.pad(v, (0, -len(v) % POINTS)).view(-1, POINTS)
    x = _forward(lines.mT[None])[0].mT.contiguous()
    indices, values = _select(x, top)
    kept = torch.zeros_like(x).scatter_(1, indices, values)
    q = _inverse(kept.mT[None])[0].mT.reshape(-1)[: len(v)]
    host = indices.to(torch.int16).view(-1).cpu().numpy().view(np.uint16)
    return host, values.view(-1).cpu().numpy(), q


def _select(x: Any, top: int) -> tuple[Any, Any]:
    """Return rising indices and values of the ``top`` largest magnitudes of each row, of equal ones the first."""
    import torch

    bits = x.view(torch.int32) & 0x7FFFFFFF
    edge = bits.topk(top, dim=1).values[:, -1:]
    above, equal = bits > edge, bits == edge
    equal &= equal.cumsum(1) <= top - above.sum(1, keepdim=True)
    indices = (above | equal).nonzero()[:, 1].view(-1, top)
    return indices, x.gather(1, indices).clamp_(-LIMIT, LIMIT)


def _forward(x: Any) -> Any:
    """Transform along the second of three dimensions."""
    import torch

    shape = x.shape
    for size, factors in HALF_SECANTS.items():
        x = x.reshape(shape[0], -1, size, shape[2])
        one, other = x[:, :, : size // 2], x[:, :, size // 2 :].flip(2)
        x = torch.cat([one + other, (one - other) * _column(factors, x)], 2)
    for size in (4, 8, 16, 32, 64):
        x = x.reshape(shape[0], -1, size, shape[2])
        even, odd = x[:, :, : size // 2], x[:, :, size // 2 :].clone()
        odd[:, :, :-1] += x[:, :, size // 2 + 1 :]
        x = torch.stack([even, odd], 3)
    return x.reshape(shape) * _column(SCALES, x)


def _inverse(x: Any) -> Any:
    import torch

    shape = x.shape
    x = x * _column(SCALES, x)
    for size in (64, 32, 16, 8, 4):
        x = x.reshape(shape[0], -1, size, shape[2])
        even, odd = x[:, :, ::2], x[:, :, 1::2].clone()
        odd[:, :, 1:] += x[:, :, 1:-1:2]
        x = torch.cat([even, odd], 2)
    for size, factors in reversed(HALF_SECANTS.items()):
        x = x.reshape(shape[0], -1, size, shape[2])
        one, other = x[:, :, : size // 2], x[:, :, size // 2 :] * _column(factors, x)
        x = torch.cat([one + other, (one - other).flip(2)], 2)
    return x.reshape(shape)


def _column(numbers: Any, like: Any) -> Any:
    import torch

    return torch.from_numpy(numbers).to(like.device)[:, None]

"""Whole numbers times a scale per block, rounded to the nearest or at random: for vectors of NumPy and of torch, the same
bits.

The bounds that its users state hold up to 2^-140 per element: where the largest of a block is below about 2^-118, the
scale is a subnormal float, which has fewer bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from taut.codecs.compressor import Array, CompressedPiece, Vector
from taut.codecs.kernels import cpu
from taut.codecs.wire.layouts.int_levels import BLOCKS, pack_numbers
from taut.errors import Misuse

MOST = 127  # of an int8, symmetric
LEVEL_KERNELS = ("levels._lowest", "levels.multiply", "levels.block_maxima")
RANDOM_KERNELS = (*LEVEL_KERNELS, "kernels.fill_uniform", "levels.round_blocks_randomly", "levels.unpack")


def check_bucket(codec: Any) -> None:
    """Raise ``Misuse`` unless the bucket is a length that the layout can hold."""
    value = codec.bucket
    if isinstance(value, bool) or value not in BLOCKS:
        expected = f"a power of two from {BLOCKS[0]} to {BLOCKS[-1]}"
        raise Misuse(f"{codec.name}: bucket={value}", expected, "try bucket=512")


def rounded(v: Vector, block: int) -> CompressedPiece:
    """Quantize with scale = max|v| / 127 of each block, numbers = round(v / scale), half to even.

    >>> piece = rounded(np.array([127.0, -1.4, -0.1], np.float32), 64)
    >>> [array.tolist() for array in piece.body], piece.q.tolist()
    ([[1.0], [127, 255, 0]], [127.0, -1.0, 0.0])
    """
    scales = scales_of(v, block, MOST)
    if isinstance(v, np.ndarray):
        numbers, q = cpu.levels.round_blocks(v, block, scales, MOST)
        return CompressedPiece((scales, numbers.view(np.uint8)), q)
    numbers = quotients(v, block, scales).round_().clamp_(-MOST, MOST).add_(0.0)  # without -0, as in the kernel
    return _piece(v, numbers, scales, 8)


def round_randomly(v: Vector, u: Vector, block: int, scales: Vector, most: int, width: int) -> CompressedPiece:
    """Quantize with numbers = floor(x), or one more with a probability of x - floor(x), for x = v / scale within ±most:
    their mean is x. ``u``: uniform numbers in [0, 1), which decide. In ``width`` bits.

    >>> v, u = np.array([2.0, -1.0, 0.5], np.float32), np.array([0.9, 0.2, 0.2], np.float32)
    >>> round_randomly(v, u, 64, np.array([2.0], np.float32), 1, 2).q.tolist()
    [2.0, 0.0, 2.0]
    """
    if isinstance(v, np.ndarray):
        numbers, q = cpu.levels.round_blocks_randomly(v, u, block, scales, most)
        return CompressedPiece((scales, pack_numbers(numbers, width)), q)
    x = quotients(v, block, scales).clamp_(-most, most)
    below = x.floor()
    padded = in_blocks(u, block)
    return _piece(v, below + (padded < x - below).to(x.dtype), scales, width)


def block_maxima(v: Vector, block: int) -> Vector:
    """Return max|v| of each block."""
    if isinstance(v, np.ndarray):
        return cpu.levels.block_maxima(v.view(np.int32), block)
    return in_blocks(v, block).abs().amax(1)


def scales_of(v: Vector, block: int, most: int) -> Vector:
    """Return max|v| / most of each block, but never so large that most * scale is infinite.

    >>> scales_of(np.array([3.5, -7.0], np.float32), 64, 7).tolist()
    [1.0]
    """
    cap = float(largest_scale(most))
    if isinstance(v, np.ndarray):
        return np.minimum(block_maxima(v, block) / np.float32(most), np.float32(cap))
    import torch

    largest = block_maxima(v, block)  # divided by a tensor: torch may multiply by the inverse of a Python number
    scales = (largest / torch.full_like(largest, float(most))).clamp_(max=cap)
    return scales.add_(nan_unless_finite(largest))


def nan_unless_finite(largest: Any) -> Any:
    """Return 0 for each block, NaN where its largest is not finite: added to scales, it shows there. On a GPU the
    elements themselves were not checked."""
    return largest - largest


def on_host(*parts: Any) -> tuple[Array, ...]:
    """Return tensors as arrays in host memory. From another device they cross in one copy, through pinned memory, for
    which the host waits once."""
    if parts[0].device.type == "cpu":
        return tuple(part.numpy() for part in parts)
    return fetched(parts)


def fetched(parts: Sequence[Any]) -> tuple[Array, ...]:
    """Copy the parts to the host by way of the device's scratch buffers.

    >>> import torch
    >>> [part.tolist() for part in fetched((torch.ones(2), torch.tensor([7], dtype=torch.uint8)))]
    [[1.0, 1.0], [7]]
    """
    import torch

    from taut.codecs.kernels.triton.buffers import scratch

    joined = torch.cat([part.view(torch.uint8) for part in parts])
    host = scratch(joined.device).fetch(joined).copy()  # the buffer is used again for the next update
    stops = np.cumsum([part.numel() * part.element_size() for part in parts])
    pieces = np.split(host, stops[:-1])
    types = (np.dtype(str(part.dtype).removeprefix("torch.")) for part in parts)
    return tuple(piece.view(dtype) for piece, dtype in zip(pieces, types, strict=True))


def in_blocks(v: Any, block: int) -> Any:
    """Return a tensor as rows of ``block`` elements, the last one filled up with zeros."""
    import torch

    rows = -(-len(v) // block)
    return torch.nn.functional.pad(v, (0, rows * block - len(v))).view(rows, block)


def pack_torch(numbers: Any, width: int) -> Any:
    """Pack as ``layouts.int_levels.pack_numbers``, on the tensor's device, so that only the packed bytes cross to the
    host."""
    import torch

    each = 8 // width
    codes = in_blocks(numbers.view(torch.uint8) & ((1 << width) - 1), each)
    packed = codes[:, 0].clone()
    for index in range(1, each):
        packed |= codes[:, index] << (width * index)
    return packed


@cache
def largest_scale(most: int) -> np.float32:
    """Return the largest scale of which ``most`` are finite: the greatest float over most, rounded down."""
    greatest = np.finfo(np.float32).max
    cap = np.float32(greatest / np.float32(most))
    return cap if float(cap) * most <= float(greatest) else np.nextafter(cap, np.float32(0.0))


def quotients(v: Any, block: int, scales: Any) -> Any:
    """Return v / scale in rows of a block each; v itself where the scale is 0."""
    import torch

    divisor = torch.where(scales > 0, scales, torch.ones_like(scales))[:, None]
    return in_blocks(v, block) / divisor


def _piece(v: Any, numbers: Any, scales: Any, width: int) -> CompressedPiece:
    """Return the piece for rows of whole numbers, held as floats."""
    import torch

    q = (numbers * scales[:, None]).view(-1)[: len(v)]
    packed = pack_torch(numbers.to(torch.int8).view(-1)[: len(v)], width)
    return CompressedPiece(on_host(scales, packed), q)

"""levels8 (int8) and onebit in Triton: one pass each; a block's sums and maxima are taken while its elements are in
registers. With v = r + (w - b) share: the sent part moves b, the rest stays in r, and w = b.

Equations and bits are those of ``quantize.rounded`` and of ``onebit.py``. Sums are folded as in ``ordered_sums.py``, from
the far ends of a block inwards; with one warp to a program, the first halvings stay inside a thread and the rest are
exchanges within the warp. A block with an element that is not finite moves nothing but r, and its scale or one of its
means is not finite, which shows on the host.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from taut.codecs.kernels.triton.buffers import Scratch, scratch
from taut.codecs.kernels.triton.launch import EXACT, Tile
from taut.codecs.kernels.triton.scan import jit, kernel, load, store
from taut.codecs.math.quantize import MOST, largest_scale

COLUMNS = 128  # 32 threads of a warp, four elements each
TO_INTEGER = tl.constexpr(12582912.0)  # 1.5 x 2^23: adding it leaves no bits below one, rounded to even
INFINITE = tl.constexpr(0x7F800000)  # the bits of infinity; those of a NaN are more
TILES = {"levels8": Tile(1024, 2), "onebit": Tile(2048, 1)}  # onebit takes a block to a program: only the warps count
LEAST_BLOCK, MOST_BLOCK = 32, 1 << 14  # powers of two; ordered_sums.py folds longer ones in another order

F32 = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]


@jit
def _keep(w, b, r, indices, shared, v, sent, left, FULL: tl.constexpr):  # type: ignore[no-untyped-def]
    """Compute r = v - sent; b += sent; w = b."""
    moved = shared + sent
    store(r, indices, v - sent, left, FULL)
    store(b, indices, moved, left, FULL)
    store(w, indices, moved, left, FULL)


@kernel("n", "first")
def _levels8(  # type: ignore[no-untyped-def]
    w, b, r, n, first, share, cap, scales, codes, FULL: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Quantize ``ROWS`` blocks to a program, four codes to an int32. Both results have room for whole programs."""
    tile = (tl.program_id(0) + first).to(tl.int64)
    start = tile * (ROWS * BLOCK)
    left = n - start
    rows = tl.arange(0, ROWS)
    indices = rows[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    shared = load(b + start, indices, left, FULL)
    v = load(r + start, indices, left, FULL) + (load(w + start, indices, left, FULL) - shared) * share
    top = tl.max(v.to(tl.int32, bitcast=True) & 0x7FFFFFFF, axis=1)  # bits: a maximum of floats would hide a NaN
    largest = top.to(tl.float32, bitcast=True)
    scale = tl.minimum(tl.div_rn(largest, tl.full((ROWS,), 127.0, tl.float32)), cap)
    tl.store(scales + tile * ROWS + rows, tl.where(top < INFINITE, scale, largest))
    scale = tl.where(top < INFINITE, scale, 0.0)
    divisor = tl.where(scale > 0, scale, 1.0)[:, None] + tl.zeros_like(v)
    level = tl.where(scale[:, None] > 0, tl.div_rn(v, divisor), 0.0)
    code = tl.minimum(tl.maximum((level + TO_INTEGER) - TO_INTEGER, -127.0), 127.0).to(tl.int32)
    _keep(w + start, b + start, r + start, indices, shared, v, code.to(tl.float32) * scale[:, None], left, FULL)
    four = tl.reshape(code & 0xFF, (ROWS, BLOCK // 4, 4)) << (8 * tl.arange(0, 4))[None, None, :]
    at = rows[:, None] * (BLOCK // 4) + tl.arange(0, BLOCK // 4)[None, :]
    tl.store(codes + tile * (ROWS * BLOCK // 4) + at, tl.sum(four, axis=2))


@jit
def _folded(x, ROWS: tl.constexpr, LOG_ROWS: tl.constexpr, WIDE: tl.constexpr, LOG_WIDE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the sum of a block in float64, by halves: over its rows, then over its columns. A step adds two numbers, in
    either order."""
    x = x.to(tl.float64)
    for step in tl.static_range(LOG_ROWS):
        x = tl.sum(tl.reshape(x, (2, ROWS >> (step + 1), WIDE)), axis=0)
    x = tl.reshape(x, (WIDE,))
    for step in tl.static_range(LOG_WIDE):
        x = tl.sum(tl.reshape(x, (2, WIDE >> (step + 1))), axis=0)
    return tl.sum(x, axis=0)


@kernel("n", "first")
def _onebit(  # type: ignore[no-untyped-def]
    w, b, r, n, first, share, plus, minus, bits,
    FULL: tl.constexpr, ROWS: tl.constexpr, LOG_ROWS: tl.constexpr, WIDE: tl.constexpr, LOG_WIDE: tl.constexpr,
):  # fmt: skip
    """Compress a block to a program, as ``ROWS`` of ``WIDE``; 32 bits to an int32, with room for whole blocks."""
    block = (tl.program_id(0) + first).to(tl.int64)
    start = block * (ROWS * WIDE)
    left = n - start
    indices = tl.arange(0, ROWS)[:, None] * WIDE + tl.arange(0, WIDE)[None, :]
    shared = load(b + start, indices, left, FULL)
    v = load(r + start, indices, left, FULL) + (load(w + start, indices, left, FULL) - shared) * share
    below = v < 0
    lower = tl.sum(tl.sum(below.to(tl.int32), axis=1), axis=0)
    upper = tl.minimum(left, ROWS * WIDE).to(tl.int32) - lower
    high = _folded(tl.where(v <= 0, 0.0, v), ROWS, LOG_ROWS, WIDE, LOG_WIDE)  # with the NaN
    low = _folded(tl.where(below, v, 0.0), ROWS, LOG_ROWS, WIDE, LOG_WIDE)
    above_mean = (high / tl.maximum(upper, 1).to(tl.float64)).to(tl.float32)
    below_mean = (low / tl.maximum(lower, 1).to(tl.float64)).to(tl.float32)
    tl.store(plus + block, above_mean)
    tl.store(minus + block, below_mean)
    top = tl.maximum(above_mean.to(tl.int32, bitcast=True), below_mean.to(tl.int32, bitcast=True) & 0x7FFFFFFF)
    sent = tl.where(top < INFINITE, tl.where(below, below_mean, above_mean), 0.0)
    _keep(w + start, b + start, r + start, indices, shared, v, sent, left, FULL)
    words = tl.reshape(below.to(tl.int32), (ROWS * WIDE // 32, 32)) << tl.arange(0, 32)[None, :]
    at = block * (ROWS * WIDE // 32) + tl.arange(0, ROWS * WIDE // 32)
    tl.store(bits + at, tl.sum(words, axis=1))


def _check(block: int) -> None:
    assert LEAST_BLOCK <= block <= MOST_BLOCK and not block & (block - 1), f"blocks of {block}"


def _warps(tile: Tile, elements: int) -> int:
    """Return enough warps that a thread's elements stay in registers; never so many that two would have the same elements
    (a warp takes 128), because the second could read what the first has already written."""
    return max(1, min(max(tile.warps, elements // 2048), elements // 128))


def launch_levels8(w: Tensor, b: Tensor, r: Tensor, share: float, block: int, kept: Scratch) -> Tensor:
    """Return the device's buffer of scales and codes, with room for whole programs, without waiting for the device."""
    n, tile = len(w), TILES["levels8"]
    rows = max(1, tile.elements // block)
    programs, whole = triton.cdiv(n, rows * block), n // (rows * block)
    message = kept.take("message", programs * rows * (4 + block), torch.uint8)
    scales, codes = message[: 4 * programs * rows], message[4 * programs * rows :]
    for full, first, count in ((True, 0, whole), (False, whole, programs - whole)):
        if count:
            _levels8[(count,)](
                w, b, r, n, first, float(share), float(largest_scale(MOST)),
                scales.view(torch.float32), codes.view(torch.int32),
                FULL=full, ROWS=rows, BLOCK=block, num_warps=_warps(tile, rows * block), **EXACT,
            )  # fmt: skip
    return message


@torch.no_grad()
def levels8(w: Tensor, b: Tensor, r: Tensor, share: float, block: int) -> tuple[F32, U8]:
    """Send code x scale, where scale = max|v| / 127 of the block and code = v / scale rounded to even; return the scales,
    and the codes as bytes. They are valid until the next scan on this device."""
    _check(block)
    n, kept = len(w), scratch(w.device)
    with kept.current():
        found = kept.fetch(launch_levels8(w, b, r, share, block, kept))
    padded = found.size // (4 + block)
    return found[: 4 * padded].view(np.float32)[: triton.cdiv(n, block)], found[4 * padded :][:n]


@torch.no_grad()
def levels8_there(w: Tensor, b: Tensor, r: Tensor, share: float, block: int) -> tuple[Tensor, Tensor]:
    """Do as ``levels8``, but return both on the device, without waiting for it."""
    _check(block)
    n, kept = len(w), scratch(w.device)
    with kept.current():
        message = launch_levels8(w, b, r, share, block, kept)
    padded = message.numel() // (4 + block)
    return message[: 4 * padded].view(torch.float32)[: triton.cdiv(n, block)], message[4 * padded :][:n]


def launch_onebit(w: Tensor, b: Tensor, r: Tensor, share: float, block: int, kept: Scratch) -> Tensor:
    """Return the device's buffer of both means of every block and the bits, without waiting for the device."""
    n, wide = len(w), min(block, COLUMNS)
    blocks, whole = triton.cdiv(n, block), n // block
    message = kept.take("message", blocks * (8 + block // 8), torch.uint8)
    plus, minus = (message[4 * blocks * part : 4 * blocks * (part + 1)].view(torch.float32) for part in (0, 1))
    for full, first, count in ((True, 0, whole), (False, whole, blocks - whole)):
        if count:
            _onebit[(count,)](
                w, b, r, n, first, float(share), plus, minus, message[8 * blocks :].view(torch.int32),
                FULL=full, ROWS=block // wide, LOG_ROWS=(block // wide).bit_length() - 1,
                WIDE=wide, LOG_WIDE=wide.bit_length() - 1, num_warps=_warps(TILES["onebit"], block), **EXACT,
            )  # fmt: skip
    return message


@torch.no_grad()
def onebit(w: Tensor, b: Tensor, r: Tensor, share: float, block: int) -> tuple[F32, F32, U8]:
    """Send the mean of v >= 0 or the mean of v < 0 of the block in place of v; return both means of every block, and the
    bits (1 for v < 0), eight to a byte from the low end. They are valid until the next scan on this device."""
    _check(block)
    n, blocks, kept = len(w), triton.cdiv(len(w), block), scratch(w.device)
    with kept.current():
        found = kept.fetch(launch_onebit(w, b, r, share, block, kept))
    means = found[: 8 * blocks].view(np.float32)
    return means[:blocks], means[blocks:], found[8 * blocks : 8 * blocks + (n + 7) // 8]

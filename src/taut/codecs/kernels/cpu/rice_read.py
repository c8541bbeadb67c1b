"""The loops that read the format of ``wire/rice.py``, in numba, and refuse every other body.

All quotients are read from the unary plane first, then block by block the low plane is added. Everything is checked
before it is used: nothing is read beyond the body and its spare bytes, and no number can overflow.
"""

from __future__ import annotations

import numpy as np
from numba import types

from taut.codecs.kernels.cpu.array_types import U8_IN, U32
from taut.codecs.kernels.cpu.bits import load, lowest, ones
from taut.codecs.kernels.cpu.compilation import kernel, part
from taut.codecs.kernels.cpu.rice_write import _FOUR_FIT, BLOCK, SPARE_NBYTES

__all__ = ["BLOCK", "SPARE_NBYTES", "read"]

_u32, _u64 = np.uint32, np.uint64
_0, _1, _2, _3, _4, _7, _64 = (np.uint64(n) for n in (0, 1, 2, 3, 4, 7, 64))
_one, _block = np.uint32(1), np.uint64(BLOCK)
_MOST = np.uint8(30)  # the largest parameter: with it, no gap below 2^31 has a quotient above 1


@part
def _read_unary(body, plane, nbytes, out):  # type: ignore[no-untyped-def]
    """Read all quotients into ``out``; return whether there is one for each word."""
    count = _u64(out.size)
    j, bit, cell = _0, _0, _0
    while cell < nbytes << _3:
        bits = load(body, plane + (cell >> _3))
        if ones(bits) > count - j:
            return False
        while bits:
            at = cell + lowest(bits)
            out[j] = _u32(at - bit)
            bit = at + _1
            j += _1
            bits &= bits - _1
        cell += _64
    return j == count


@part
def _read_low(body, bit, size, k, lows):  # type: ignore[no-untyped-def]
    """Read a block's part of the low plane, from ``bit`` on."""
    width, mask = k + _1, (_1 << (k + _1)) - _1
    j = _0
    if width <= _FOUR_FIT:
        while j + _3 < size:
            four = load(body, bit >> _3) >> (bit & _7)
            for i in range(_4):
                lows[j + i] = _u32(four >> (i * width) & mask)
            bit += width << _2
            j += _4
    while j < size:
        lows[j] = _u32(load(body, bit >> _3) >> (bit & _7) & mask)
        bit += width
        j += _1


@part
def _join(lows, size, k, after, out, start):  # type: ignore[no-untyped-def]
    """Turn quotients in ``out`` into words. ``after``: the lowest index possible."""
    width = _u32(k) + _one
    for j in range(size):
        out[start + j] = (out[start + j] << width) + (lows[j] | _one) + _one  # 2 (gap + 1): without the sign
    word = _u32(after - _1) << _one
    for j in range(size):
        word += out[start + j]
        out[start + j] = word | (lows[j] & _one)


@part
def _read_block(body, bit, k, start, size, after, length, lows, out):  # type: ignore[no-untyped-def]
    """Turn quotients in ``out`` into words. ``after``: the lowest index possible. Return the lowest index possible after
    the block, or 0 for an index out of range, or ``length`` + 1 if k is not the best: for the quotients q and the highest
    of the low bits t, ceil((gap >> k) / 2) = ceil(q / 2) and ceil((gap >> (k - 1)) / 2) = q + t."""
    zeros, halves = _0, _0
    for j in range(size):
        zeros += _u64(out[start + j])
        halves += _u64(out[start + j] + _one >> _one)
    _read_low(body, bit, size, k, lows)
    shift = _u32(k)
    lower, tops = _0, _0
    for j in range(size):
        lower += _u64(lows[j] >> _one)
        tops += _u64(lows[j] >> shift)
    end = after + (zeros << k) + lower + size
    if end > length:
        return _0
    if halves > size or (k and zeros + tops <= size):
        return length + _1
    _join(lows, size, k, after, out, start)
    return end


@kernel(types.uint64(U8_IN, types.uint64, types.uint64, U32))
def read(body, nbytes, length, out):  # type: ignore[no-untyped-def]
    """Read the words of a body of ``nbytes`` (and 8 zeros) into ``out``. Return 0, or the error's index in
    ``rice._WRONG``. The caller has checked only that there is a byte for each parameter."""
    count = _u64(out.size)
    blocks = (count + _block - _1) // _block
    low_bits = _0
    for block in range(blocks):
        if body[block] > _MOST:
            return _u64(1)
        low_bits += min(_block, count - block * _block) * (_u64(body[block]) + _1)
    plane = blocks + ((low_bits + _7) >> _3)
    # There are at most `length` zeros and `count` ones, so no sum of quotients, times 2^k, can overflow.
    if plane >= nbytes or (nbytes - plane) << _3 > count + length + _7:
        return _u64(2)
    padding = body[plane - _1] >> np.uint8(low_bits & _7) if low_bits & _7 else np.uint8(0)
    if padding or not body[nbytes - _1] or not _read_unary(body, plane, nbytes - plane, out):
        return _u64(3)
    lows = np.empty(BLOCK, np.uint32)
    bit, after = blocks << _3, _0
    for block in range(blocks):
        start, k = block * _block, _u64(body[block])
        size = min(_block, count - start)
        after = _read_block(body, bit, k, start, size, after, length, lows, out)
        if not after or after > length:
            return _u64(5) if after else _u64(4)
        bit += size * (k + _1)
    return _0

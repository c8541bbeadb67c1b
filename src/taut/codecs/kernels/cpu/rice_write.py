"""The loops that write the format of ``wire/rice.py``, in numba: the choice of each block's parameter, and the two
planes.

Whatever needs no branch is a loop of its own over a block's small buffer, so that it vectorizes. Bits are put together
four words at a time, and stored eight bytes at once at the next byte.

As with ``kernels.cpu.kernels``, nothing imports this before it is needed.
"""

from __future__ import annotations

import numpy as np
from numba import types

from taut.codecs.kernels.cpu.array_types import U8, U8_IN, U32_IN, tuple_of
from taut.codecs.kernels.cpu.bits import store
from taut.codecs.kernels.cpu.compilation import kernel, part

BLOCK = 128  # words that share a parameter: a part of the format
SPARE_NBYTES = 8  # at the end of every buffer that is accessed eight bytes at once

_u32, _u64 = np.uint32, np.uint64
_0, _1, _2, _3, _4, _7, _8 = (np.uint64(n) for n in (0, 1, 2, 3, 4, 7, 8))
_one, _block = np.uint32(1), np.uint64(BLOCK)
_FOUR_FIT = np.uint64(14)  # bits of each of four numbers: with 7 bits before them, below 64


@part
def _read_gaps(words, start, size, gaps):  # type: ignore[no-untyped-def]
    """Write the gaps before the words of a block into ``gaps``; return whether the indices rise."""
    gaps[_0] = words[start] >> _one
    if start:
        gaps[_0] -= (words[start - _1] >> _one) + _one
    ahead = start == _0 or words[start] >> _one > words[start - _1] >> _one
    wrong = _u32(0)
    for j in range(_1, size):
        here, before = words[start + j] >> _one, words[start + j - _1] >> _one
        gaps[j] = here - before - _one
        wrong |= _one if here <= before else _u32(0)
    return ahead and wrong == _u32(0)


@part
def _halves(gaps, size, k):  # type: ignore[no-untyped-def]
    """Return how many bits the unary codes lose when the parameter grows from k to k + 1: sum of ceil((gap >> k) / 2).
    The parameter is the smallest for which these are not more than the ``size`` bits that the low bits gain."""
    shift = _u32(k)
    lost = _u32(0)
    for j in range(size):
        lost += ((gaps[j] >> shift) + _one) >> _one
    return _u64(lost)


@part
def _parameter(gaps, size, total):  # type: ignore[no-untyped-def]
    """Return the best k: f(k) = size k + sum(gap >> k) is convex, so the search goes downhill from a guess by the
    mean."""
    k = _0
    while total >> (k + _1) >= size:
        k += _1
    if _halves(gaps, size, k) > size:
        k += _1
        while _halves(gaps, size, k) > size:
            k += _1
        return k
    while k and _halves(gaps, size, k - _1) <= size:
        k -= _1
    return k


@kernel(tuple_of(types.uint64, types.uint64)(U32_IN, types.uint64, U8))
def plan(words, length, parameters):  # type: ignore[no-untyped-def]
    """Choose every block's parameter. Return the bits of the low plane and of the unary plane, or (0, start of the block)
    where the words do not rise within ``length``."""
    count = _u64(words.size)
    low_bits, unary_bits = _0, count
    gaps = np.empty(BLOCK, np.uint32)
    for block in range(_u64(parameters.size)):
        start = block * _block
        size = min(_block, count - start)
        rising = _read_gaps(words, start, size, gaps)
        last = _u64(words[start + size - _1] >> _one)
        if not rising or last >= length:
            return _0, start
        before = _u64(words[start - _1] >> _one) + _1 if start else _0
        k = _parameter(gaps, size, last + _1 - before - size)
        shift = _u32(k)
        quotients = _u32(0)
        for j in range(size):
            quotients += gaps[j] >> shift
        parameters[block] = np.uint8(k)
        low_bits += size * (k + _1)
        unary_bits += _u64(quotients)
    return low_bits, unary_bits


@part
def _append(body, byte, fill, held, code, width):  # type: ignore[no-untyped-def]
    """Put ``width`` bits of ``code`` at bit ``fill`` of byte ``byte``; ``held``: what that byte has already. fill + width
    must be below 64. Return byte, fill and held for the next call."""
    held |= code << fill
    store(body, byte, held)
    fill += width
    return byte + (fill >> _3), fill & _7, held >> (fill & ~_7)


@part
def _write_low(words, start, size, gaps, k, body, byte, fill, held):  # type: ignore[no-untyped-def]
    """Write the low k bits and the sign of each word of a block. ``gaps`` is used up."""
    mask = (_one << _u32(k)) - _one
    for i in range(size):
        gaps[i] = (gaps[i] & mask) << _one | (words[start + i] & _one)
    width = k + _1
    j = _0
    if width <= _FOUR_FIT:
        while j + _3 < size:
            low = _u64(gaps[j]) | _u64(gaps[j + _1]) << width
            high = _u64(gaps[j + _2]) | _u64(gaps[j + _3]) << width
            byte, fill, held = _append(body, byte, fill, held, low | high << (width + width), width << _2)
            j += _4
    while j < size:
        byte, fill, held = _append(body, byte, fill, held, _u64(gaps[j]), width)
        j += _1
    return byte, fill, held


@part
def _write_unary(gaps, size, k, body, byte, fill, held):  # type: ignore[no-untyped-def]
    """Write (gap >> k) zeros and a one for each gap. ``gaps`` is used up."""
    shift = _u32(k)
    for i in range(size):
        gaps[i] = gaps[i] >> shift
    j = _0
    while j < size:
        if j + _3 < size:
            first = _u64(gaps[j])
            second = first + _u64(gaps[j + _1]) + _1
            third = second + _u64(gaps[j + _2]) + _1
            fourth = third + _u64(gaps[j + _3]) + _1
            if fourth < _4 * _FOUR_FIT:
                code = _1 << first | _1 << second | _1 << third | _1 << fourth
                byte, fill, held = _append(body, byte, fill, held, code, fourth + _1)
                j += _4
                continue
        zeros = _u64(gaps[j])
        if zeros >= _8:  # the body is all zeros and has the held bits: whole bytes are skipped
            byte, held = byte + (zeros >> _3), _0
            zeros &= _7
        byte, fill, held = _append(body, byte, fill, held, _1 << zeros, zeros + _1)
        j += _1
    return byte, fill, held


@kernel(types.void(U32_IN, U8_IN, types.uint64, U8))
def write(words, parameters, low_nbytes, body):  # type: ignore[no-untyped-def]
    """Write the body for words that ``plan`` has seen. ``body`` is all zeros and has 8 bytes to spare."""
    count, blocks = _u64(words.size), _u64(parameters.size)
    for block in range(blocks):  # a slice would be compiled with the text of its error: two seconds
        body[block] = parameters[block]
    gaps = np.empty(BLOCK, np.uint32)
    byte, fill, held = blocks, _0, _0
    for block in range(blocks):
        start = block * _block
        size = min(_block, count - start)
        _read_gaps(words, start, size, gaps)
        byte, fill, held = _write_low(words, start, size, gaps, _u64(parameters[block]), body, byte, fill, held)
    byte, fill, held = blocks + low_nbytes, _0, _0
    for block in range(blocks):  # after the low plane, whose last store may reach into this one
        start = block * _block
        size = min(_block, count - start)
        _read_gaps(words, start, size, gaps)
        byte, fill, held = _write_unary(gaps, size, _u64(parameters[block]), body, byte, fill, held)

"""Whole numbers times a scale per block, in numba: passes over a piece that is in the cache. The same bits as the torch
operations of ``math/quantize.py``: float32, one rounding per operation.

The largest of a block is found among the floats' bits, which rise with the magnitude: a maximum of whole numbers
vectorizes, one of floats does not (NaN is in the way).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from taut.codecs.kernels.cpu.compilation import kernel
from taut.codecs.parallel import run_parts

F32 = npt.NDArray[np.float32]
I8 = npt.NDArray[np.int8]
U8 = npt.NDArray[np.uint8]

_vector = types.Array(types.float32, 1, "C")
_values_in = types.Array(types.float32, 1, "C", readonly=True)
_floats = types.Array(types.int32, 1, "C", readonly=True)  # the bits of floats
_numbers = types.Array(types.int8, 1, "C")
_bytes = types.Array(types.uint8, 1, "C")
_bytes_in = types.Array(types.uint8, 1, "C", readonly=True)
_f32, _index = types.float32, types.int64
_zero, _one = np.float32(0.0), np.float32(1.0)
_magnitude, _infinite = np.int32(0x7FFFFFFF), np.int32(0x7F800000)


@kernel(types.void(_floats, _index, _vector))
def _block_maxima(bits, block, maxima):  # type: ignore[no-untyped-def]
    for index in range(maxima.size):
        top = np.int32(0)
        some = bits[index * block : (index + 1) * block]
        for i in range(some.size):
            top = max(top, some[i] & _magnitude)
        maxima[index] = np.int32(top).view(np.float32)


@kernel(types.void(_values_in, _index, _values_in, _f32, _numbers, _vector))
def _round_blocks(v, block, scales, most, numbers, q):  # type: ignore[no-untyped-def]
    for index in range(scales.size):
        scale = scales[index]
        divisor = scale if scale > _zero else _one
        start, stop = index * block, (index + 1) * block
        x, out, into = v[start:stop], numbers[start:stop], q[start:stop]
        for i in range(x.size):
            number = (
                min(max(np.rint(x[i] / divisor), -most), most) + _zero
            )  # + 0 turns -0 into 0: whole numbers have no -0
            out[i] = np.int8(np.int32(number))
            into[i] = number * scale


@kernel(types.void(_vector, _vector, _vector, _f32, _index, _f32, _f32, _vector, _numbers))
def _update_blocks(w, b, r, share, block, most, cap, scales, numbers):  # type: ignore[no-untyped-def]
    """Do a whole update, block by block, each while it is in the nearest cache. The scale of a block with an element that
    is not finite is NaN, and nothing of the block moves. Loops over few vectors each vectorize best."""
    room = np.empty(block, np.float32)
    for index in range(scales.size):
        start, stop = index * block, (index + 1) * block
        live, base, left, out = w[start:stop], b[start:stop], r[start:stop], numbers[start:stop]
        top = np.int32(0)
        for i in range(left.size):
            grown = left[i] + (live[i] - base[i]) * share
            left[i] = grown
            top = max(top, np.float32(grown).view(np.int32) & _magnitude)
        if top >= _infinite:
            scales[index] = np.nan
            continue
        scale = min(np.int32(top).view(np.float32) / most, cap)
        scales[index] = scale
        divisor = scale if scale > _zero else _one
        for i in range(left.size):
            number = min(max(np.rint(left[i] / divisor), -most), most) + _zero
            out[i] = np.int8(np.int32(number))
            room[i] = number * scale
        for i in range(left.size):
            left[i] -= room[i]
        for i in range(left.size):
            base[i] += room[i]
            live[i] = base[i]


@kernel(types.void(_values_in, _values_in, _index, _values_in, _f32, _numbers, _vector))
def _round_blocks_randomly(v, u, block, scales, most, numbers, q):  # type: ignore[no-untyped-def]
    for index in range(scales.size):
        scale = scales[index]
        divisor = scale if scale > _zero else _one
        start, stop = index * block, (index + 1) * block
        some, random, out, into = v[start:stop], u[start:stop], numbers[start:stop], q[start:stop]
        for i in range(some.size):
            x = min(max(some[i] / divisor, -most), most)
            below = np.floor(x)
            number = below + (_one if random[i] < x - below else _zero)
            out[i] = np.int8(np.int32(number))
            into[i] = number * scale


@kernel(types.void(_values_in, _index, _values_in, _vector, _vector))
def _block_square_sums(v, block, maxima, room, sums):  # type: ignore[no-untyped-def]
    """Write the sums of (v / maximum)^2 of each block into ``sums``. ``room``: a buffer for a block."""
    for index in range(maxima.size):
        divisor = maxima[index] if maxima[index] > _zero else _one
        some = v[index * block : (index + 1) * block]
        room[some.size :] = _zero
        for i in range(some.size):
            x = some[i] / divisor
            room[i] = x * x
        half = block // 2
        while half > 0:
            upper = room[half:]
            for i in range(half):
                room[i] += upper[i]
            half //= 2
        sums[index] = room[0]


@kernel(types.void(types.Array(types.uint16, 1, "C", readonly=True), _bytes))
def _pack_4(pairs, packed):  # type: ignore[no-untyped-def]
    for i in range(packed.size):
        x = np.uint32(pairs[i])
        packed[i] = np.uint8((x & np.uint32(0x0F)) | ((x >> np.uint32(4)) & np.uint32(0xF0)))


@kernel(types.void(types.Array(types.uint32, 1, "C", readonly=True), _bytes))
def _pack_2(fours, packed):  # type: ignore[no-untyped-def]
    for i in range(packed.size):
        x = fours[i] & np.uint32(0x03030303)
        packed[i] = np.uint8(x | (x >> np.uint32(6)) | (x >> np.uint32(12)) | (x >> np.uint32(18)))


@kernel(types.void(_bytes_in, types.uint8, _numbers))
def _unpack(packed, width, numbers):  # type: ignore[no-untyped-def]
    """Unpack numbers of 2 or 4 bits: shifting to the top of a byte and back copies the sign."""
    if width == 4:
        for i in range(packed.size):
            numbers[2 * i] = np.int8(np.int8(packed[i] << np.uint8(4)) >> 4)
            numbers[2 * i + 1] = np.int8(np.int8(packed[i]) >> 4)
    else:
        for i in range(packed.size):
            numbers[4 * i] = np.int8(np.int8(packed[i] << np.uint8(6)) >> 6)
            numbers[4 * i + 1] = np.int8(np.int8(packed[i] << np.uint8(4)) >> 6)
            numbers[4 * i + 2] = np.int8(np.int8(packed[i] << np.uint8(2)) >> 6)
            numbers[4 * i + 3] = np.int8(np.int8(packed[i]) >> 6)


@kernel(types.void(types.Array(types.int8, 1, "C", readonly=True), _index, _values_in, _vector))
def _multiply(numbers, block, scales, values):  # type: ignore[no-untyped-def]
    for index in range(scales.size):
        scale = scales[index]
        some, into = numbers[index * block : (index + 1) * block], values[index * block : (index + 1) * block]
        for i in range(some.size):
            into[i] = np.float32(some[i]) * scale


@kernel(types.boolean(_bytes_in, types.uint8))
def _lowest(packed, width):  # type: ignore[no-untyped-def]
    """Return whether a number is the lowest of its width: its upper bit alone."""
    found = np.uint8(0)
    if width == 8:
        for i in range(packed.size):
            found |= np.uint8(packed[i] == np.uint8(0x80))
    elif width == 4:
        for i in range(packed.size):
            x = packed[i]
            found |= np.uint8((x & np.uint8(0x0F)) == np.uint8(0x08)) | np.uint8((x & np.uint8(0xF0)) == np.uint8(0x80))
    else:
        for i in range(packed.size):
            found |= packed[i] & np.uint8(0xAA) & ~np.uint8(packed[i] << np.uint8(1))
    return found != np.uint8(0)


def block_maxima(v: F32, block: int) -> F32:
    """Return max|v| of each block."""
    found: F32 = np.empty(-(-v.size // block), np.float32)
    _block_maxima(v.view(np.int32), block, found)
    return found


def block_square_sums(v: F32, block: int, maxima: F32) -> F32:
    """Return the sum of (v / maximum)^2 of each block. The upper half is added to the lower one until one number is left:
    the same order everywhere."""
    sums: F32 = np.empty(maxima.size, np.float32)
    _block_square_sums(v, block, maxima, np.empty(block, np.float32), sums)
    return sums


def round_blocks(v: F32, block: int, scales: F32, most: int) -> tuple[I8, F32]:
    """Return numbers round(v / scale), half to even, within ±most, and the values that they stand for."""
    numbers, q = _room(v)
    _round_blocks(v, block, scales, np.float32(most), numbers, q)
    return numbers, q


def update_blocks(w: F32, b: F32, r: F32, share: float, block: int, most: int, cap: float) -> tuple[F32, I8]:
    """Compute r += (w - b) share;  scales = max|r| / most, ``cap`` at most;  numbers = round(r / scale), which moves from
    r to b;  w = b. The same as ``block_maxima``, ``round_blocks`` and the kernels of error feedback, in one pass over
    memory."""
    f32 = np.float32
    scales, numbers = np.empty(-(-r.size // block), f32), np.empty(r.size, np.int8)
    _update_blocks(w, b, r, f32(share), block, f32(most), f32(cap), scales, numbers)
    return scales, numbers


def round_blocks_randomly(v: F32, u: F32, block: int, scales: F32, most: int) -> tuple[I8, F32]:
    """Return numbers below or above v / scale, as ``u`` decides, within ±most, and the values that they stand for."""
    numbers, q = _room(v)
    _round_blocks_randomly(v, u, block, scales, np.float32(most), numbers, q)
    return numbers, q


def pack(numbers: I8, width: int) -> U8:
    """Pack numbers of 2 or 4 bits, as many as fill whole bytes."""
    packed: U8 = np.empty(numbers.size * width // 8, np.uint8)
    if width == 4:
        _pack_4(np.require(numbers.view(np.uint16), requirements="A"), packed)
    else:
        _pack_2(np.require(numbers.view(np.uint32), requirements="A"), packed)
    return packed


def unpack(packed: U8, width: int) -> I8:
    numbers: I8 = np.empty(packed.size * 8 // width, np.int8)
    _unpack(packed, np.uint8(width), numbers)
    return numbers


def multiply(numbers: I8, block: int, scales: F32) -> F32:
    values: F32 = np.empty(numbers.size, np.float32)
    _multiply(numbers, block, scales, values)
    return values


def lowest_is_used(packed: U8, width: int) -> bool:
    return any(run_parts(lambda start, stop: _lowest(packed[start:stop], np.uint8(width)), 0, packed.size))


def _room(v: F32) -> tuple[I8, Any]:
    return np.empty(v.size, np.int8), np.empty(v.size, np.float32)

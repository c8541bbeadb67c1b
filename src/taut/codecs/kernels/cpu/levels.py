"""Codes times a scale per block, in numba: whole numbers, and floats of 8 bits. Passes over a piece that is in the cache,
with the same bits as the torch operations of ``math/quantize.py`` and ``fp8.py``: float32, one rounding per operation.

The largest of a block is found among the floats' bits, which rise with the magnitude: a maximum of whole numbers
vectorizes, one of floats does not (NaN is in the way).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from taut.codecs.kernels.cpu.array_types import F32, F32_IN, I8, I8_IN, I32_IN, U8, U8_IN, U16_IN, U32_IN, tuple_of
from taut.codecs.kernels.cpu.compilation import kernel, part
from taut.codecs.parallel import run_parts

_f32, _index = types.float32, types.int64
_zero, _one, _nan = np.float32(0.0), np.float32(1.0), np.float32(np.nan)
_magnitude, _infinite = np.int32(0x7FFFFFFF), np.int32(0x7F800000)

# Floats of 8 bits (e4m3) are rounded as kernels.cpu.floats says: 2^14 has a step of 2^-9, the finest of theirs.
_greatest_fp8, _normal_fp8 = np.float32(448.0), np.float32(2.0**-6)
_magic_fp8, _bits_of_magic = np.float32(2.0**14), np.uint32(0x46800000)
_under_20, _cut_20, _bias_fp8 = np.uint32(0x7FFFF), np.uint32(0xFFF00000), np.uint32((127 - 7) << 3)
_1, _20, _24, _sign = np.uint32(1), np.uint32(20), np.uint32(24), np.uint32(0x80000000)


@kernel(F32(I32_IN, _index))
def block_maxima(bits, block):  # type: ignore[no-untyped-def]
    """Return max|v| of each block of floats, given as whole numbers."""
    maxima = np.empty((bits.size + block - 1) // block, np.float32)
    for index in range(maxima.size):
        top = np.int32(0)
        some = bits[index * block : (index + 1) * block]
        for i in range(some.size):
            top = max(top, some[i] & _magnitude)
        maxima[index] = np.int32(top).view(np.float32)
    return maxima


@part
def _nearest_fp8(x):  # type: ignore[no-untyped-def]
    """Return the code and the value of the nearest number of 8 bits."""
    sign = np.float32(x).view(np.uint32) & _sign
    a = min(abs(x), _greatest_fp8)
    bits = np.float32(a).view(np.uint32)
    bits = bits + (_under_20 + ((bits >> _20) & _1))
    lifted = a + _magic_fp8
    small = a < _normal_fp8
    code = (np.float32(lifted).view(np.uint32) - _bits_of_magic) if small else ((bits >> _20) - _bias_fp8)
    value = (lifted - _magic_fp8) if small else np.uint32(bits & _cut_20).view(np.float32)
    return np.uint8(code | (sign >> _24)), np.uint32(np.float32(value).view(np.uint32) | sign).view(np.float32)


@kernel(tuple_of(I8, F32)(F32_IN, _index, F32_IN, _f32))
def round_blocks(v, block, scales, most):  # type: ignore[no-untyped-def]
    """Return numbers round(v / scale), half to even, within ±most, and the values that they stand for."""
    numbers, q = np.empty(v.size, np.int8), np.empty(v.size, np.float32)
    for index in range(scales.size):
        scale = scales[index]
        divisor = scale if scale > _zero else _one
        start, stop = index * block, (index + 1) * block
        x, out, into = v[start:stop], numbers[start:stop], q[start:stop]
        for i in range(x.size):
            number = min(max(np.rint(x[i] / divisor), -most), most) + _zero  # + 0 turns -0, which codes lack, into 0
            out[i] = np.int8(np.int32(number))
            into[i] = number * scale
    return numbers, q


@kernel(tuple_of(U8, F32)(F32_IN, _index, F32_IN))
def write_fp8(v, block, scales):  # type: ignore[no-untyped-def]
    """Return v / scale of each block as e4m3, and the values that these stand for."""
    codes, q = np.empty(v.size, np.uint8), np.empty(v.size, np.float32)
    for index in range(scales.size):
        scale = scales[index]
        divisor = scale if scale > _zero else _one
        start, stop = index * block, (index + 1) * block
        some, out, into = v[start:stop], codes[start:stop], q[start:stop]
        for i in range(some.size):
            code, value = _nearest_fp8(some[i] / divisor)
            out[i] = code
            into[i] = value * scale
    return codes, q


@part
def _grow(w, b, r, share, most, cap):  # type: ignore[no-untyped-def]
    """Compute r += (w - b) share of a block; return its scale, max|r| / most and ``cap`` at most, or NaN."""
    top = np.int32(0)
    for i in range(r.size):
        grown = r[i] + (w[i] - b[i]) * share
        r[i] = grown
        top = max(top, np.float32(grown).view(np.int32) & _magnitude)
    return min(np.int32(top).view(np.float32) / most, cap) if top < _infinite else _nan


@part
def _move(w, b, r, sent):  # type: ignore[no-untyped-def]
    """Compute r -= sent;  b += sent;  w = b. Loops over few vectors each vectorize best."""
    for i in range(r.size):
        r[i] -= sent[i]
    for i in range(r.size):
        b[i] += sent[i]
        w[i] = b[i]


@kernel(tuple_of(F32, I8)(F32, F32, F32, _f32, _index, _f32, _f32))
def update_levels(w, b, r, share, block, most, cap):  # type: ignore[no-untyped-def]
    """Compute r += (w - b) share;  scales = max|r| / most, ``cap`` at most;  numbers = round(r / scale), which moves from
    r to b;  w = b. The same as ``block_maxima``, ``round_blocks`` and the kernels of error feedback, but block by block,
    each while it is in the nearest cache. The scale of a block with an element that is not finite is NaN, and nothing of
    the block moves."""
    scales, numbers = np.empty((r.size + block - 1) // block, np.float32), np.empty(r.size, np.int8)
    room = np.empty(block, np.float32)
    for index in range(scales.size):
        start, stop = index * block, (index + 1) * block
        live, base, left, out = w[start:stop], b[start:stop], r[start:stop], numbers[start:stop]
        scale = scales[index] = _grow(live, base, left, share, most, cap)
        divisor = scale if scale > _zero else _one
        if not np.isnan(scale):
            for i in range(left.size):
                number = min(max(np.rint(left[i] / divisor), -most), most) + _zero
                out[i] = np.int8(np.int32(number))
                room[i] = number * scale
            _move(live, base, left, room)
    return scales, numbers


@kernel(tuple_of(F32, U8)(F32, F32, F32, _f32, _index, _f32))
def update_fp8(w, b, r, share, block, cap):  # type: ignore[no-untyped-def]
    """Do the same as ``update_levels`` with codes of e4m3."""
    scales, codes = np.empty((r.size + block - 1) // block, np.float32), np.empty(r.size, np.uint8)
    room = np.empty(block, np.float32)
    for index in range(scales.size):
        start, stop = index * block, (index + 1) * block
        live, base, left, out = w[start:stop], b[start:stop], r[start:stop], codes[start:stop]
        scale = scales[index] = _grow(live, base, left, share, _greatest_fp8, cap)
        divisor = scale if scale > _zero else _one
        if not np.isnan(scale):
            for i in range(left.size):
                code, value = _nearest_fp8(left[i] / divisor)
                out[i] = code
                room[i] = value * scale
            _move(live, base, left, room)
    return scales, codes


@kernel(F32(U8_IN, F32_IN, _index, F32_IN))
def read_fp8(codes, table, block, scales):  # type: ignore[no-untyped-def]
    """Return the values of e4m3 codes times their block's scale. ``table``: the value of each of the 256 codes."""
    values = np.empty(codes.size, np.float32)
    for index in range(scales.size):
        scale = scales[index]
        some, into = codes[index * block : (index + 1) * block], values[index * block : (index + 1) * block]
        for i in range(some.size):
            into[i] = table[np.uint64(some[i])] * scale
    return values


@kernel(tuple_of(I8, F32)(F32_IN, F32_IN, _index, F32_IN, _f32))
def round_blocks_randomly(v, u, block, scales, most):  # type: ignore[no-untyped-def]
    """Return numbers below or above v / scale, as ``u`` decides, within ±most, and the values that they stand for."""
    numbers, q = np.empty(v.size, np.int8), np.empty(v.size, np.float32)
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
    return numbers, q


@kernel(F32(F32_IN, _index, F32_IN))
def block_square_sums(v, block, maxima):  # type: ignore[no-untyped-def]
    """Return the sum of (v / maximum)^2 of each block. The upper half is added to the lower one until one number is left:
    the same order everywhere."""
    sums, room = np.empty(maxima.size, np.float32), np.empty(block, np.float32)
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
    return sums


@kernel(U8(U16_IN))
def pack_4(pairs):  # type: ignore[no-untyped-def]
    """Pack numbers into 4 bits each, given two at a time."""
    packed = np.empty(pairs.size, np.uint8)
    for i in range(packed.size):
        x = np.uint32(pairs[i])
        packed[i] = np.uint8((x & np.uint32(0x0F)) | ((x >> np.uint32(4)) & np.uint32(0xF0)))
    return packed


@kernel(U8(U32_IN))
def pack_2(fours):  # type: ignore[no-untyped-def]
    """Pack numbers into 2 bits each, given four at a time."""
    packed = np.empty(fours.size, np.uint8)
    for i in range(packed.size):
        x = fours[i] & np.uint32(0x03030303)
        packed[i] = np.uint8(x | (x >> np.uint32(6)) | (x >> np.uint32(12)) | (x >> np.uint32(18)))
    return packed


@kernel(I8(U8_IN, types.uint8))
def unpack(packed, width):  # type: ignore[no-untyped-def]
    """Unpack numbers of 2 or 4 bits: shifting to the top of a byte and back copies the sign."""
    each = np.int64(8) // np.int64(width)
    numbers = np.empty(packed.size * each, np.int8)
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
    return numbers


@kernel(F32(I8_IN, _index, F32_IN))
def multiply(numbers, block, scales):  # type: ignore[no-untyped-def]
    """Return the numbers of each block times its scale."""
    values = np.empty(numbers.size, np.float32)
    for index in range(scales.size):
        scale = scales[index]
        some, into = numbers[index * block : (index + 1) * block], values[index * block : (index + 1) * block]
        for i in range(some.size):
            into[i] = np.float32(some[i]) * scale
    return values


@kernel(types.boolean(U8_IN, types.uint8))
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


def lowest_is_used(packed: npt.NDArray[np.uint8], width: int) -> bool:
    return any(run_parts(lambda start, stop: _lowest(packed[start:stop], width), 0, packed.size))

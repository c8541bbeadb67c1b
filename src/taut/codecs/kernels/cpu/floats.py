"""Floats of 16 and 8 bits, in numba: rounded to the nearest, half to even, by whole-number arithmetic on the bits.

A float32 is cut to fewer bits by adding just under half of what is cut off, plus one if the last bit that stays is odd: a
tie then goes to the even one. Numbers below the least normal one of the short format are multiples of its finest step:
adding a power of two whose own step is that one rounds them, and leaves their count in the lowest bits. All without
branches, so that it vectorizes; the same bits as the conversions of torch, which take longer (bench: fp8 8 times, bf16
1.7 times; fp16 writes faster but reads slower).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit, types

from taut.codecs.kernels.cpu.compilation import kernel

F32 = npt.NDArray[np.float32]
U16 = npt.NDArray[np.uint16]
U8 = npt.NDArray[np.uint8]

_part = njit(nogil=True, error_model="numpy")  # compiled and kept with the kernels that call it

_vector = types.Array(types.float32, 1, "C")
_values_in = types.Array(types.float32, 1, "C", readonly=True)
_bits = types.Array(types.uint32, 1, "C")
_bits_in = types.Array(types.uint32, 1, "C", readonly=True)
_codes16 = types.Array(types.uint16, 1, "C")
_codes16_in = types.Array(types.uint16, 1, "C", readonly=True)
_bytes = types.Array(types.uint8, 1, "C")
_bytes_in = types.Array(types.uint8, 1, "C", readonly=True)
_index = types.int64

_zero, _one, _half = np.float32(0.0), np.float32(1.0), np.float32(0.5)
_1, _13, _16, _20, _24 = (np.uint32(number) for number in (1, 13, 16, 20, 24))
_sign, _magnitude, _infinite = np.uint32(0x80000000), np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)

_greatest_fp16, _normal_fp16 = np.float32(65504.0), np.float32(2.0**-14)
_bits_of_half = np.uint32(0x3F000000)  # of 0.5, whose step is 2^-24, the finest of a float16
_under_13, _cut_13, _bias_fp16 = np.uint32(0x0FFF), np.uint32(0xFFFFE000), np.uint32((127 - 15) << 10)

_greatest_bf16, _under_16 = np.uint32(0x7F7F0000), np.uint32(0x7FFF)

_greatest_fp8, _normal_fp8 = np.float32(448.0), np.float32(2.0**-6)
_magic_fp8, _bits_of_magic = np.float32(2.0**14), np.uint32(0x46800000)  # whose step is 2^-9, the finest of e4m3
_under_20, _cut_20, _bias_fp8 = np.uint32(0x7FFFF), np.uint32(0xFFF00000), np.uint32((127 - 7) << 3)


@kernel(types.void(_values_in, _index, _values_in, _values_in, _codes16, _vector))
def _write_fp16(v, block, scales, inverses, codes, q):  # type: ignore[no-untyped-def]
    for index in range(scales.size):
        scale, inverse = scales[index], inverses[index]
        start, stop = index * block, (index + 1) * block
        some, out, into = v[start:stop], codes[start:stop], q[start:stop]
        for i in range(some.size):
            x = some[i] * inverse
            sign = np.float32(x).view(np.uint32) & _sign
            a = min(abs(x), _greatest_fp16)
            bits = np.float32(a).view(np.uint32)
            bits = bits + (_under_13 + ((bits >> _13) & _1))
            lifted = a + _half
            small = a < _normal_fp16
            code = (np.float32(lifted).view(np.uint32) - _bits_of_half) if small else ((bits >> _13) - _bias_fp16)
            value = (lifted - _half) if small else np.uint32(bits & _cut_13).view(np.float32)
            out[i] = np.uint16(code | (sign >> _16))
            into[i] = np.uint32(np.float32(value).view(np.uint32) | sign).view(np.float32) * scale


@kernel(types.void(_codes16_in, _index, _values_in, _vector))
def _read_fp16(codes, block, scales, values):  # type: ignore[no-untyped-def]
    for index in range(scales.size):
        scale = scales[index]
        some, into = codes[index * block : (index + 1) * block], values[index * block : (index + 1) * block]
        for i in range(some.size):
            code = np.uint32(some[i])
            a = code & np.uint32(0x7FFF)
            small = np.uint32(a | _bits_of_half).view(np.float32) - _half
            normal = np.uint32((a + _bias_fp16) << _13).view(np.float32)
            value = small if a < np.uint32(0x0400) else normal
            bits = np.float32(value).view(np.uint32) | ((code << _16) & _sign)
            into[i] = np.uint32(bits).view(np.float32) * scale


@kernel(types.void(_bits_in, _codes16, _bits))
def _write_bf16(v, codes, q):  # type: ignore[no-untyped-def]
    for i in range(v.size):
        a = v[i] & _magnitude
        a = min((a + (_under_16 + ((a >> _16) & _1))) & np.uint32(0xFFFF0000), _greatest_bf16) | (v[i] & _sign)
        codes[i] = np.uint16(a >> _16)
        q[i] = a


@_part
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


@kernel(types.void(_values_in, _index, _values_in, _bytes, _vector))
def _write_fp8(v, block, scales, codes, q):  # type: ignore[no-untyped-def]
    for index in range(scales.size):
        scale = scales[index]
        divisor = scale if scale > _zero else _one
        start, stop = index * block, (index + 1) * block
        some, out, into = v[start:stop], codes[start:stop], q[start:stop]
        for i in range(some.size):
            code, value = _nearest_fp8(some[i] / divisor)
            out[i] = code
            into[i] = value * scale


@kernel(types.void(_vector, _vector, _vector, types.float32, _index, types.float32, _vector, _bytes))
def _update_fp8(w, b, r, share, block, cap, scales, codes):  # type: ignore[no-untyped-def]
    """Do a whole update, block by block, each while it is in the nearest cache. The scale of a block with an element that
    is not finite is NaN, and nothing of the block moves. Loops over few vectors each vectorize best."""
    room = np.empty(block, np.float32)
    for index in range(scales.size):
        start, stop = index * block, (index + 1) * block
        live, base, left, out = w[start:stop], b[start:stop], r[start:stop], codes[start:stop]
        top = np.uint32(0)
        for i in range(left.size):
            grown = left[i] + (live[i] - base[i]) * share
            left[i] = grown
            top = max(top, np.float32(grown).view(np.uint32) & _magnitude)
        if top >= _infinite:
            scales[index] = np.nan
            continue
        scale = min(np.uint32(top).view(np.float32) / _greatest_fp8, cap)
        scales[index] = scale
        divisor = scale if scale > _zero else _one
        for i in range(left.size):
            code, value = _nearest_fp8(left[i] / divisor)
            out[i] = code
            room[i] = value * scale
        for i in range(left.size):
            left[i] -= room[i]
        for i in range(left.size):
            base[i] += room[i]
            live[i] = base[i]


@kernel(types.void(_bytes_in, _values_in, _index, _values_in, _vector))
def _read_fp8(codes, table, block, scales, values):  # type: ignore[no-untyped-def]
    for index in range(scales.size):
        scale = scales[index]
        some, into = codes[index * block : (index + 1) * block], values[index * block : (index + 1) * block]
        for i in range(some.size):
            into[i] = table[np.uint64(some[i])] * scale


def write_fp16(v: F32, block: int, scales: F32, inverses: F32) -> tuple[U16, F32]:
    """Return v / scale of each block as float16, and the values that these stand for. ``inverses``: 1 / scale, exact."""
    codes, q = np.empty(v.size, np.uint16), np.empty(v.size, np.float32)
    _write_fp16(v, block, scales, inverses, codes, q)
    return codes, q


def read_fp16(codes: U16, block: int, scales: F32) -> F32:
    values: F32 = np.empty(codes.size, np.float32)
    _read_fp16(codes, block, scales, values)
    return values


def write_bf16(v: F32) -> tuple[U16, F32]:
    """Return v as bfloat16, and the values that these stand for."""
    codes, q = np.empty(v.size, np.uint16), np.empty(v.size, np.float32)
    _write_bf16(v.view(np.uint32), codes, q.view(np.uint32))
    return codes, q


def write_fp8(v: F32, block: int, scales: F32) -> tuple[U8, F32]:
    """Return v / scale of each block as e4m3, and the values that these stand for."""
    codes, q = np.empty(v.size, np.uint8), np.empty(v.size, np.float32)
    _write_fp8(v, block, scales, codes, q)
    return codes, q


def update_fp8(w: F32, b: F32, r: F32, share: float, block: int, cap: float) -> tuple[F32, U8]:
    """Compute r += (w - b) share;  scales = max|r| / 448, ``cap`` at most;  e4m3(r / scale) moves from r to b;  w = b.
    The same as ``kernels.cpu.levels.block_maxima``, ``write_fp8`` and the kernels of error feedback, in one pass over
    memory."""
    f32 = np.float32
    scales, codes = np.empty(-(-r.size // block), f32), np.empty(r.size, np.uint8)
    _update_fp8(w, b, r, f32(share), block, f32(cap), scales, codes)
    return scales, codes


def read_fp8(codes: U8, table: F32, block: int, scales: F32) -> F32:
    """Return the values of e4m3 codes times their block's scale. ``table``: the value of each of the 256 codes."""
    values: F32 = np.empty(codes.size, np.float32)
    _read_fp8(codes, table, block, scales, values)
    return values

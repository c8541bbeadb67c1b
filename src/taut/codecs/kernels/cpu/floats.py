"""Floats of 16 and 8 bits, in numba: rounded to the nearest, half to even, by whole-number arithmetic on the bits.

A float32 is cut to fewer bits by adding just under half of what is cut off, plus one if the last bit that stays is odd:
a tie then goes to the even one. Numbers below the least normal one of the short format are multiples of its finest step:
adding a power of two whose own step is that one rounds them, and leaves their count in the lowest bits. All without
branches, so that it vectorizes; the same bits as the conversions of torch.
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
_halves = types.Array(types.uint16, 1, "C")
_halves_in = types.Array(types.uint16, 1, "C", readonly=True)
_bytes = types.Array(types.uint8, 1, "C")
_bytes_in = types.Array(types.uint8, 1, "C", readonly=True)
_index = types.int64

_zero, _one, _half = np.float32(0.0), np.float32(1.0), np.float32(0.5)
_1, _13, _16, _20, _24 = (np.uint32(number) for number in (1, 13, 16, 20, 24))
_sign, _magnitude, _infinite = np.uint32(0x80000000), np.uint32(0x7FFFFFFF), np.uint32(0x7F800000)

_greatest_half, _normal_half = np.float32(65504.0), np.float32(2.0**-14)
_bits_of_half = np.uint32(0x3F000000)  # of 0.5, whose step is 2^-24, the finest of a float16
_under_13, _cut_13, _bias_half = np.uint32(0x0FFF), np.uint32(0xFFFFE000), np.uint32((127 - 15) << 10)

_greatest_brain, _under_16 = np.uint32(0x7F7F0000), np.uint32(0x7FFF)

_greatest_eighth, _normal_eighth = np.float32(448.0), np.float32(2.0**-6)
_magic_eighth, _bits_of_magic = np.float32(2.0**14), np.uint32(0x46800000)  # whose step is 2^-9, the finest of e4m3
_under_20, _cut_20, _bias_eighth = np.uint32(0x7FFFF), np.uint32(0xFFF00000), np.uint32((127 - 7) << 3)


@kernel(types.void(_values_in, _index, _values_in, _values_in, _halves, _vector))
def _write_halves(v, block, scales, inverses, halves, q):  # type: ignore[no-untyped-def]
    for place in range(scales.size):
        scale, inverse = scales[place], inverses[place]
        start, stop = place * block, (place + 1) * block
        some, out, into = v[start:stop], halves[start:stop], q[start:stop]
        for i in range(some.size):
            x = some[i] * inverse
            sign = np.float32(x).view(np.uint32) & _sign
            a = min(abs(x), _greatest_half)
            bits = np.float32(a).view(np.uint32)
            bits = bits + (_under_13 + ((bits >> _13) & _1))
            lifted = a + _half
            small = a < _normal_half
            code = (np.float32(lifted).view(np.uint32) - _bits_of_half) if small else ((bits >> _13) - _bias_half)
            value = (lifted - _half) if small else np.uint32(bits & _cut_13).view(np.float32)
            out[i] = np.uint16(code | (sign >> _16))
            into[i] = np.uint32(np.float32(value).view(np.uint32) | sign).view(np.float32) * scale


@kernel(types.void(_halves_in, _index, _values_in, _vector))
def _read_halves(halves, block, scales, values):  # type: ignore[no-untyped-def]
    for place in range(scales.size):
        scale = scales[place]
        some, into = halves[place * block : (place + 1) * block], values[place * block : (place + 1) * block]
        for i in range(some.size):
            code = np.uint32(some[i])
            a = code & np.uint32(0x7FFF)
            small = np.uint32(a | _bits_of_half).view(np.float32) - _half
            normal = np.uint32((a + _bias_half) << _13).view(np.float32)
            value = small if a < np.uint32(0x0400) else normal
            bits = np.float32(value).view(np.uint32) | ((code << _16) & _sign)
            into[i] = np.uint32(bits).view(np.float32) * scale


@kernel(types.void(_bits_in, _halves, _bits))
def _write_brains(v, brains, q):  # type: ignore[no-untyped-def]
    for i in range(v.size):
        a = v[i] & _magnitude
        a = min((a + (_under_16 + ((a >> _16) & _1))) & np.uint32(0xFFFF0000), _greatest_brain) | (v[i] & _sign)
        brains[i] = np.uint16(a >> _16)
        q[i] = a


@_part
def _eighth(x):  # type: ignore[no-untyped-def]
    """The nearest number of 8 bits: its code, and its value."""
    sign = np.float32(x).view(np.uint32) & _sign
    a = min(abs(x), _greatest_eighth)
    bits = np.float32(a).view(np.uint32)
    bits = bits + (_under_20 + ((bits >> _20) & _1))
    lifted = a + _magic_eighth
    small = a < _normal_eighth
    code = (np.float32(lifted).view(np.uint32) - _bits_of_magic) if small else ((bits >> _20) - _bias_eighth)
    value = (lifted - _magic_eighth) if small else np.uint32(bits & _cut_20).view(np.float32)
    return np.uint8(code | (sign >> _24)), np.uint32(np.float32(value).view(np.uint32) | sign).view(np.float32)


@kernel(types.void(_values_in, _index, _values_in, _bytes, _vector))
def _write_eighths(v, block, scales, eighths, q):  # type: ignore[no-untyped-def]
    for place in range(scales.size):
        scale = scales[place]
        divisor = scale if scale > _zero else _one
        start, stop = place * block, (place + 1) * block
        some, out, into = v[start:stop], eighths[start:stop], q[start:stop]
        for i in range(some.size):
            code, value = _eighth(some[i] / divisor)
            out[i] = code
            into[i] = value * scale


@kernel(types.void(_vector, _vector, _vector, types.float32, _index, types.float32, _vector, _bytes))
def _update_eighths(w, b, r, share, block, cap, scales, eighths):  # type: ignore[no-untyped-def]
    """A whole update, block by block, each while it is in the nearest cache. The scale of a block in which something is
    not finite is NaN, and nothing of it moves. Loops over few vectors each vectorize best."""
    room = np.empty(block, np.float32)
    for place in range(scales.size):
        start, stop = place * block, (place + 1) * block
        live, base, left, out = w[start:stop], b[start:stop], r[start:stop], eighths[start:stop]
        top = np.uint32(0)
        for i in range(left.size):
            grown = left[i] + (live[i] - base[i]) * share
            left[i] = grown
            top = max(top, np.float32(grown).view(np.uint32) & _magnitude)
        if top >= _infinite:
            scales[place] = np.nan
            continue
        scale = min(np.uint32(top).view(np.float32) / _greatest_eighth, cap)
        scales[place] = scale
        divisor = scale if scale > _zero else _one
        for i in range(left.size):
            code, value = _eighth(left[i] / divisor)
            out[i] = code
            room[i] = value * scale
        for i in range(left.size):
            left[i] -= room[i]
        for i in range(left.size):
            base[i] += room[i]
            live[i] = base[i]


@kernel(types.void(_bytes_in, _values_in, _index, _values_in, _vector))
def _read_eighths(eighths, table, block, scales, values):  # type: ignore[no-untyped-def]
    for place in range(scales.size):
        scale = scales[place]
        some, into = eighths[place * block : (place + 1) * block], values[place * block : (place + 1) * block]
        for i in range(some.size):
            into[i] = table[np.uint64(some[i])] * scale


def write_halves(v: F32, block: int, scales: F32, inverses: F32) -> tuple[U16, F32]:
    """v / scale of each block as float16, and what that stands for. ``inverses``: 1 / scale, exact."""
    halves, q = np.empty(v.size, np.uint16), np.empty(v.size, np.float32)
    _write_halves(v, block, scales, inverses, halves, q)
    return halves, q


def read_halves(halves: U16, block: int, scales: F32) -> F32:
    values: F32 = np.empty(halves.size, np.float32)
    _read_halves(halves, block, scales, values)
    return values


def write_brains(v: F32) -> tuple[U16, F32]:
    """v as bfloat16, and what that stands for."""
    brains, q = np.empty(v.size, np.uint16), np.empty(v.size, np.float32)
    _write_brains(v.view(np.uint32), brains, q.view(np.uint32))
    return brains, q


def write_eighths(v: F32, block: int, scales: F32) -> tuple[U8, F32]:
    """v / scale of each block as e4m3, and what that stands for."""
    eighths, q = np.empty(v.size, np.uint8), np.empty(v.size, np.float32)
    _write_eighths(v, block, scales, eighths, q)
    return eighths, q


def update_eighths(w: F32, b: F32, r: F32, share: float, block: int, cap: float) -> tuple[F32, U8]:
    """r += (w - b) share;  scales = max|r| / 448, ``cap`` at most;  e4m3(r / scale) moves from r to b;  w = b. As
    ``kernels.cpu.levels.tops``, ``write_eighths`` and the kernels of error feedback would, in one pass over memory."""
    f32 = np.float32
    scales, eighths = np.empty(-(-r.size // block), f32), np.empty(r.size, np.uint8)
    _update_eighths(w, b, r, f32(share), block, f32(cap), scales, eighths)
    return scales, eighths


def read_eighths(eighths: U8, table: F32, block: int, scales: F32) -> F32:
    """``table``: what each of the 256 codes stands for."""
    values: F32 = np.empty(eighths.size, np.float32)
    _read_eighths(eighths, table, block, scales, values)
    return values

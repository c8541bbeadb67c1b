"""Floats of 16 bits, in numba: rounded to the nearest, half to even, by whole-number arithmetic on the bits.

A float32 is cut to fewer bits by adding just under half of what is cut off, plus one if the last bit that stays is odd: a
tie then goes to the even one. Numbers below the least normal one of the short format are multiples of its finest step:
adding a power of two whose own step is that one rounds them, and leaves their count in the lowest bits. All without
branches, so that it vectorizes; the same bits as the conversions of torch, which take longer (bench: fp8 8 times, bf16
1.7 times; fp16 writes faster but reads slower).
"""

from __future__ import annotations

import numpy as np
from numba import types

from taut.codecs.kernels.cpu.array_types import F32, F32_IN, U16, U16_IN, U32, U32_IN, tuple_of
from taut.codecs.kernels.cpu.compilation import kernel

_index = types.int64
_half = np.float32(0.5)
_1, _13, _16 = (np.uint32(number) for number in (1, 13, 16))
_sign, _magnitude = np.uint32(0x80000000), np.uint32(0x7FFFFFFF)

_greatest_fp16, _normal_fp16 = np.float32(65504.0), np.float32(2.0**-14)
_bits_of_half = np.uint32(0x3F000000)  # of 0.5, whose step is 2^-24, the finest of a float16
_under_13, _cut_13, _bias_fp16 = np.uint32(0x0FFF), np.uint32(0xFFFFE000), np.uint32((127 - 15) << 10)

_greatest_bf16, _under_16 = np.uint32(0x7F7F0000), np.uint32(0x7FFF)


@kernel(tuple_of(U16, F32)(F32_IN, _index, F32_IN, F32_IN))
def write_fp16(v, block, scales, inverses):  # type: ignore[no-untyped-def]
    """Return v / scale of each block as float16, and the values that these stand for. ``inverses``: 1 / scale, exact."""
    codes, q = np.empty(v.size, np.uint16), np.empty(v.size, np.float32)
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
    return codes, q


@kernel(F32(U16_IN, _index, F32_IN))
def read_fp16(codes, block, scales):  # type: ignore[no-untyped-def]
    """Return the values of float16 codes times their block's scale."""
    values = np.empty(codes.size, np.float32)
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
    return values


@kernel(tuple_of(U16, U32)(U32_IN))
def write_bf16(bits):  # type: ignore[no-untyped-def]
    """Return floats, given by their bits, as bfloat16, and the bits of the values that these stand for."""
    codes, q = np.empty(bits.size, np.uint16), np.empty(bits.size, np.uint32)
    for i in range(bits.size):
        a = bits[i] & _magnitude
        a = min((a + (_under_16 + ((a >> _16) & _1))) & np.uint32(0xFFFF0000), _greatest_bf16) | (bits[i] & _sign)
        codes[i] = np.uint16(a >> _16)
        q[i] = a
    return codes, q

"""HALVES and BRAINS: a float of 16 bits per element.

    HALVES   one float32 per block of 2^16 elements, a power of two from 2^-126 to 2^112: its scale;
             then a float16 per element, which changes it by float16 x scale
    BRAINS   a bfloat16 per element: the upper half of a float32

All of them are finite, and so is their product with the scale: 65504 x 2^112 < 2^128.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from taut.codecs.kernels import cpu
from taut.codecs.parallel import run_chunks
from taut.codecs.wire.layouts.base import F32, Body, DenseLayout, check_length, largest, part
from taut.codecs.wire.payload import CHUNK, Header, Kind
from taut.errors import MalformedMessage

BLOCK = CHUNK
_EXPONENT_SHIFT = 23
LEAST, MOST = 1, 127 + 112  # a float32's exponent as it is written, of the least and the greatest scale

U16 = npt.NDArray[np.uint16]


class Fp16Layout(DenseLayout):
    kind: ClassVar[Kind] = Kind.HALVES

    def check(self, head: Header, body: Body) -> None:
        scales, codes = self._read(head, body)
        bits = scales.view(np.uint32)
        exponents = bits >> _EXPONENT_SHIFT
        if (bits << (32 - _EXPONENT_SHIFT)).any() or not ((exponents >= LEAST) & (exponents <= MOST)).all():
            raise MalformedMessage("a HALVES payload with a scale that is not a power of two from 2^-126 to 2^112")
        _check_exponents(head, codes, 0x7C00)

    def reach(self, head: Header, body: Body) -> float:
        scales, codes = self._read(head, body)
        firsts = range(0, head.length, BLOCK)
        tops = np.array([(codes[at : at + BLOCK] & 0x7FFF).max() for at in firsts], np.uint16)
        return largest(tops.view(np.float16).astype(np.float64) * scales)

    def pieces(self, head: Header, body: Body, lo: int, hi: int) -> Iterator[tuple[int, F32]]:
        scales, codes = self._read(head, body)
        for start in range(lo, hi, BLOCK):
            block = start // BLOCK
            yield start, cpu.floats.read_fp16(codes[start : start + BLOCK], BLOCK, scales[block : block + 1])

    def _read(self, head: Header, body: Body) -> tuple[F32, U16]:
        blocks = -(-head.length // BLOCK)
        check_length(head, body, 4 * blocks + 2 * head.length)
        return part(body, np.float32, 0, blocks), part(body, np.uint16, 4 * blocks, head.length)


class Bf16Layout(DenseLayout):
    kind: ClassVar[Kind] = Kind.BRAINS

    def check(self, head: Header, body: Body) -> None:
        check_length(head, body, 2 * head.length)
        _check_exponents(head, part(body, np.uint16, 0, head.length), 0x7F80)

    def reach(self, head: Header, body: Body) -> float:
        top = np.array([int((part(body, np.uint16, 0, head.length) & 0x7FFF).max()) << 16], np.uint32)
        return float(top.view(np.float32)[0])

    def pieces(self, head: Header, body: Body, lo: int, hi: int) -> Iterator[tuple[int, F32]]:
        codes = part(body, np.uint16, 0, head.length)
        for start in range(lo, hi, CHUNK):
            bits = codes[start : start + CHUNK].astype(np.uint32)
            bits <<= 16
            yield start, bits.view(np.float32)


def _check_exponents(head: Header, codes: U16, mask: int) -> None:
    """Raise if all bits of an exponent are set: the number is infinite or NaN."""
    if any(run_chunks(lambda start, stop: ((codes[start:stop] & mask) == mask).any(), 0, len(codes), CHUNK)):
        raise MalformedMessage(f"a {head.kind.name} payload with a number that is not finite")

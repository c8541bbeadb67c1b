"""EIGHTHS: a float of 8 bits per element, times a scale per block of 128.

    scales     one float32 per block of the range, the last block perhaps shorter
    numbers    e4m3: a sign, 4 bits of exponent (bias 7), 3 of mantissa; no infinities; 0x7F and 0xFF are not used

Element i changes by number_i x scale of its block; the greatest number is 448, the least above zero 2^-9.

Micikevicius et al. 2022, "FP8 formats for deep learning".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import ClassVar

import numpy as np

from taut.codecs.kernels import cpu
from taut.codecs.parallel import run_chunks
from taut.codecs.wire.layouts.base import F32, Body, DenseLayout, check_finite, check_length, check_scales, largest, part
from taut.codecs.wire.payload import CHUNK, Header, Kind
from taut.errors import MalformedMessage

BLOCK = 128
GREATEST = 448


class Fp8Layout(DenseLayout):
    kind: ClassVar[Kind] = Kind.EIGHTHS

    def check(self, head: Header, body: Body) -> None:
        scales, numbers = self._read(head, body)
        check_scales(head, scales)
        with np.errstate(over="ignore"):
            check_finite(scales * np.float32(GREATEST), "an EIGHTHS payload")
        if any(run_chunks(lambda start, stop: ((numbers[start:stop] & 0x7F) == 0x7F).any(), 0, len(numbers), CHUNK)):
            raise MalformedMessage("an EIGHTHS payload with a code that is not used")

    def reach(self, head: Header, body: Body) -> float:
        return GREATEST * largest(self._read(head, body)[0])

    def pieces(self, head: Header, body: Body, lo: int, hi: int) -> Iterator[tuple[int, F32]]:
        scales, numbers = self._read(head, body)
        for start in range(lo, hi, CHUNK):
            some = scales[start // BLOCK : (start + CHUNK) // BLOCK]
            yield start, cpu.levels.read_fp8(numbers[start : start + CHUNK], table(), BLOCK, some)

    def _read(self, head: Header, body: Body) -> tuple[F32, Body]:
        blocks = -(-head.length // BLOCK)
        check_length(head, body, 4 * blocks + head.length)
        return part(body, np.float32, 0, blocks), body[4 * blocks :]


@cache
def table() -> F32:
    """Return the value of each of the 256 codes; 0 for the two that have none.

    >>> table()[[0x01, 0x38, 0x7E, 0xB8]].tolist()
    [0.001953125, 1.0, 448.0, -1.0]
    """
    codes = np.arange(128)
    exponents, mantissas = codes >> 3, codes & 7
    normal = (8 + mantissas) * 2.0 ** (exponents - 10)
    values = np.where(exponents > 0, normal, mantissas * 2.0**-9)
    values[0x7F] = 0.0
    return np.concatenate((values, -values)).astype(np.float32)

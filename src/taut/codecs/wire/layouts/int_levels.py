"""LEVELS: whole numbers of a few bits, times a scale per block.

    preamble   uint8 width (2, 4 or 8 bits a number), uint8 log2 of the block's length, 2 bytes zero
    scales     one float32 per block of the range, the last block perhaps shorter
    numbers    two's complement, packed from the low end of each byte; the spare bits of the last byte are zero

Element i changes by number_i x scale of its block. The lowest number of a width (-2, -8, -128) is not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from taut.codecs.kernels import cpu
from taut.codecs.wire.layouts.base import F32, Body, DenseLayout, check_finite, check_length, check_scales, largest, part
from taut.codecs.wire.payload import CHUNK, Header, Kind
from taut.errors import MalformedMessage

PREAMBLE = 4
WIDTHS = (2, 4, 8)
LEAST, MOST = 6, 16  # log2 of a block's length: a block is within a chunk and a multiple of 64
BLOCKS = tuple(1 << exponent for exponent in range(LEAST, MOST + 1))


def preamble(width: int, block: int) -> npt.NDArray[np.uint8]:
    """Return the first bytes of the body.

    >>> preamble(8, 256).tolist()
    [8, 8, 0, 0]
    """
    return np.array([width, block.bit_length() - 1, 0, 0], np.uint8)


def pack_numbers(numbers: npt.NDArray[np.int8], width: int) -> npt.NDArray[np.uint8]:
    """Pack numbers into bytes, ``8 / width`` of them in each; ``unpack_numbers`` takes them back.

    >>> pack_numbers(np.array([1, -1, 0], np.int8), 2).tolist()
    [13]
    """
    if width == 8:
        return numbers.view(np.uint8)
    spare = -len(numbers) % (8 // width)
    together = (np.concatenate((numbers, np.zeros(spare, np.int8))) if spare else numbers).view(f"u{8 // width}")
    pack = cpu.levels.pack_4 if width == 4 else cpu.levels.pack_2
    packed: npt.NDArray[np.uint8] = pack(np.require(together, requirements="A"))
    return packed


def unpack_numbers(packed: npt.NDArray[np.uint8], width: int, count: int) -> npt.NDArray[np.int8]:
    """Return the first ``count`` numbers in bytes.

    >>> unpack_numbers(np.array([13], np.uint8), 2, 3).tolist()
    [1, -1, 0]
    """
    if width == 8:
        return packed[:count].view(np.int8)
    numbers: npt.NDArray[np.int8] = cpu.levels.unpack(packed, width)[:count]
    return numbers


def width_of(levels: int) -> int:
    """Return the narrowest width whose numbers reach from -levels to levels.

    >>> [width_of(levels) for levels in (1, 2, 7, 8, 127)]
    [2, 4, 4, 8, 8]
    """
    return next(width for width in WIDTHS if levels < 1 << (width - 1))


class IntLevelsLayout(DenseLayout):
    kind: ClassVar[Kind] = Kind.LEVELS

    def check(self, head: Header, body: Body) -> None:
        width, _, scales, packed = self.read(head, body)
        check_scales(head, scales)
        with np.errstate(over="ignore"):
            reach = np.float32(largest(scales)) * np.float32((1 << (width - 1)) - 1)
        if not np.isfinite(reach):  # a scale is nearly too large: it depends on the numbers
            for _, values in self.pieces(head, body, 0, head.length):
                check_finite(values, "a LEVELS payload")
        spare = -head.length % (8 // width)
        if spare and int(packed[-1]) >> (8 - width * spare):
            raise MalformedMessage("a LEVELS payload with numbers beyond its range")
        if self._lowest_is_used(body, packed, width):
            raise MalformedMessage(f"a LEVELS payload with the number {-(1 << (width - 1))}, which is not used")

    def reach(self, head: Header, body: Body) -> float:
        width, _, scales, _ = self.read(head, body)
        return float((1 << (width - 1)) - 1) * largest(scales)

    def pieces(self, head: Header, body: Body, lo: int, hi: int) -> Iterator[tuple[int, F32]]:
        width, block, scales, packed = self.read(head, body)
        each = 8 // width
        for start in range(lo, hi, CHUNK):
            stop = min(start + CHUNK, head.length)
            numbers = unpack_numbers(packed[start // each : -(-stop // each)], width, stop - start)
            yield start, cpu.levels.multiply(numbers, block, scales[start // block : -(-stop // block)])

    def _lowest_is_used(self, body: Body, packed: npt.NDArray[Any], width: int) -> bool:
        return bool(cpu.levels.lowest_is_used(packed, width))

    def read(self, head: Header, body: Body) -> tuple[int, int, F32, npt.NDArray[Any]]:
        """Return the width, the length of a block, the scales and the packed numbers."""
        start = part(body, np.uint8, 0, PREAMBLE)
        width, exponent = int(start[0]), int(start[1])
        if width not in WIDTHS or not LEAST <= exponent <= MOST or start[2] or start[3]:
            raise MalformedMessage(f"a LEVELS payload of width {width} in blocks of 2^{exponent}")
        blocks = -(-head.length // (1 << exponent))
        nbytes = -(-head.length * width // 8)
        check_length(head, body, PREAMBLE + 4 * blocks + nbytes)
        scales = part(body, np.float32, PREAMBLE, blocks)
        return width, 1 << exponent, scales, body[PREAMBLE + 4 * blocks :]

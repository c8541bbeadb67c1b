"""COSINES: the largest cosine coefficients of each chunk.

    preamble   uint16 top (1 to 4096): coefficients of a chunk of 64 x 64 elements; 2 bytes zero
    indices    uint16 each, rising within a chunk: ``top`` for every whole chunk of the range, then an eighth of that (at
               least one, at most 64) for every line of 64 elements of what is left, the last one perhaps shorter
    values     float32 each, at most 2^90 in magnitude: no sum of them overflows

The elements are the inverse transform: see ``taut.codecs.math.dct``. A short last line is that of 64, cut off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from taut.codecs.kernels import cpu
from taut.codecs.math.dct import CHUNK, LIMIT, POINTS
from taut.codecs.wire.layouts.base import F32, Body, DenseLayout, check_length, largest, part
from taut.codecs.wire.payload import Header, Kind
from taut.errors import MalformedMessage

PREAMBLE = 4
TOGETHER = 16  # chunks expanded at once

Indices = npt.NDArray[Any]


def top_of_line(top: int) -> int:
    """Return how many coefficients of a line of 64 are sent beside ``top`` of a chunk.

    >>> top_of_line(32), top_of_line(1), top_of_line(4096)
    (4, 1, 64)
    """
    return min(POINTS, max(1, top // 8))


class DctLayout(DenseLayout):
    kind: ClassVar[Kind] = Kind.COSINES

    def check(self, head: Header, body: Body) -> None:
        top, indices, values = self._read(head, body)
        edge = head.length // CHUNK * top
        self._check_indices(indices[:edge].reshape(-1, top), CHUNK)
        self._check_indices(indices[edge:].reshape(-1, top_of_line(top)), POINTS)
        if not (np.abs(values) <= LIMIT).all():  # False for NaN, too
            raise MalformedMessage("a COSINES payload with a number that is not finite, or too large to be added")

    def reach(self, head: Header, body: Body) -> float:
        return largest(self._read(head, body)[2])

    def pieces(self, head: Header, body: Body, lo: int, hi: int) -> Iterator[tuple[int, F32]]:
        top, indices, values = self._read(head, body)
        chunks, left = divmod(head.length, CHUNK)
        for first in range(lo // CHUNK, min(chunks, -(-hi // CHUNK)), TOGETHER):
            some = slice(first * top, min(first + TOGETHER, chunks) * top)
            yield first * CHUNK, cpu.dct.expand_chunks(indices[some], values[some], top)
        if left and lo <= chunks * CHUNK < hi:
            some = slice(chunks * top, None)
            yield chunks * CHUNK, cpu.dct.expand_lines(indices[some], values[some], top_of_line(top), left)

    def _read(self, head: Header, body: Body) -> tuple[int, Indices, F32]:
        top, zero = (int(number) for number in part(body, np.uint16, 0, 2))
        if not 1 <= top <= CHUNK or zero:
            raise MalformedMessage(f"a COSINES payload of {top}/{zero} coefficients a chunk")
        chunks, left = divmod(head.length, CHUNK)
        count = chunks * top + -(-left // POINTS) * top_of_line(top)
        check_length(head, body, PREAMBLE + 6 * count)
        return top, part(body, np.uint16, PREAMBLE, count), part(body, np.float32, PREAMBLE + 2 * count, count)

    def _check_indices(self, indices: Indices, size: int) -> None:
        if indices.size and int(indices[:, -1].max()) >= size:
            raise MalformedMessage(f"a coefficient {int(indices[:, -1].max())} of {size}")
        if not (indices[:, 1:] > indices[:, :-1]).all():
            raise MalformedMessage("a COSINES payload whose indices do not rise")

"""SPARSE: ``count`` rising uint32 indices, then a float32 each.

SEEDED: values at indices that two numbers give.

    preamble   uint64 start, uint64 stride, which has no common factor with the length of the range
    values     ``count`` float32: the j-th belongs to element (start + j * stride) mod length, so none comes twice
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from taut.codecs.wire.layouts.base import F32, Body, SparseLayout, check_finite, check_length, largest, part
from taut.codecs.wire.payload import Header, Kind
from taut.errors import MalformedMessage

PREAMBLE = 16
LONGEST = 1 << 32  # elements of a range: products of two numbers below it fit into 64 bits


class IndexedLayout(SparseLayout):
    kind: ClassVar[Kind] = Kind.SPARSE

    def check(self, head: Header, body: Body) -> None:
        check_length(head, body, 8 * head.count)
        indices, values = self.entries(head, body)
        if indices.size and int(indices[-1]) >= head.length:
            raise MalformedMessage(f"an entry for element {int(indices[-1])} of a range of {head.length}")
        if not (indices[1:] > indices[:-1]).all():
            raise MalformedMessage("entries whose indices do not rise")
        check_finite(values, "a sparse payload")

    def reach(self, head: Header, body: Body) -> float:
        return largest(self.entries(head, body)[1])

    def entries(self, head: Header, body: Body) -> tuple[npt.NDArray[Any], F32]:
        return part(body, np.uint32, 0, head.count), part(body, np.float32, 4 * head.count, head.count)


def strided(start: int, stride: int, count: int, length: int) -> npt.NDArray[np.int64]:
    """Return (start + j * stride) mod length for j below ``count``.

    >>> strided(5, 3, 4, 8).tolist()
    [5, 0, 3, 6]
    """
    indices = np.arange(count, dtype=np.uint64)
    indices *= np.uint64(stride)
    indices %= np.uint64(length)
    indices += np.uint64(start)
    indices[indices >= length] -= np.uint64(length)
    return indices.view(np.int64)


class SeededLayout(SparseLayout):
    kind: ClassVar[Kind] = Kind.SEEDED

    def check(self, head: Header, body: Body) -> None:
        check_length(head, body, PREAMBLE + 4 * head.count)
        if not 1 <= head.count <= head.length <= LONGEST:
            raise MalformedMessage(f"a SEEDED payload of {head.count} values for a range of {head.length}")
        start, stride = (int(number) for number in part(body, np.uint64, 0, 2))
        if start >= head.length or not 1 <= stride <= head.length or math.gcd(stride, head.length) != 1:
            raise MalformedMessage(f"a SEEDED payload from {start} by {stride} in a range of {head.length}")
        check_finite(part(body, np.float32, PREAMBLE, head.count), "a SEEDED payload")

    def reach(self, head: Header, body: Body) -> float:
        return largest(part(body, np.float32, PREAMBLE, head.count))

    def entries(self, head: Header, body: Body) -> tuple[npt.NDArray[Any], F32]:
        start, stride = (int(number) for number in part(body, np.uint64, 0, 2))
        values = part(body, np.float32, PREAMBLE, head.count)
        return strided(start, stride, head.count, head.length), values

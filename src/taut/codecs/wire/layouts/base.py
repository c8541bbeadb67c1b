"""The contract of a layout: a body that is written by a compressor.

``check`` looks at every byte before anything is applied; afterwards ``pieces`` or ``entries`` cannot fail. A body may
begin with a preamble of its own (a block's length, a width), which is checked before anything is computed from it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from taut.codecs.wire.payload import Header, Kind
from taut.errors import MalformedMessage

Body = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]


class Layout(ABC):
    kind: ClassVar[Kind]

    @abstractmethod
    def check(self, head: Header, body: Body) -> None:
        """Raise ``MalformedMessage`` unless the body is right in every byte. Allocates no more than a few times its
        length."""

    @abstractmethod
    def reach(self, head: Header, body: Body) -> float:
        """Return by how much an element may change, at most, for a body that was checked. Cheaper than decoding it."""


class DenseLayout(Layout):
    """A number for every element of the range, which is what the header counts."""

    @abstractmethod
    def pieces(self, head: Header, body: Body, lo: int, hi: int) -> Iterator[tuple[int, F32]]:
        """Yield (first element, values) of the pieces that begin within ``lo..hi-1``; ``lo`` is a multiple of ``CHUNK``.
        All of them, from 0 to the header's length, cover the range together, each element once. None is large, and they
        do not depend on the thread that asks for them."""


class SparseLayout(Layout):
    """A number for some elements."""

    @abstractmethod
    def entries(self, head: Header, body: Body) -> tuple[npt.NDArray[Any], F32]:
        """Return indices (none twice, relative to the header's base) and their values."""


def part(body: Body, dtype: Any, offset: int, count: int) -> npt.NDArray[Any]:
    """Return ``count`` numbers from byte ``offset`` of the body on: in place, or a copy if the address is odd."""
    nbytes = count * np.dtype(dtype).itemsize
    if offset + nbytes > len(body):
        raise MalformedMessage(f"a body of {len(body)} bytes that should have {offset + nbytes} or more")
    return np.require(body[offset : offset + nbytes].view(dtype), requirements="A")


def check_length(head: Header, body: Body, nbytes: int) -> None:
    if len(body) != nbytes:
        raise MalformedMessage(f"{head.kind.name} payload with a body of {len(body)} bytes instead of {nbytes}")


def check_scales(head: Header, scales: F32) -> None:
    if scales.size and not 0.0 <= scales.min() <= scales.max() < np.inf:  # a NaN is the least and the greatest
        raise MalformedMessage(f"{head.kind.name} payload with a scale that is negative or not finite")


def check_finite(values: npt.NDArray[Any], what: str) -> None:
    if not np.isfinite(values).all():
        raise MalformedMessage(f"{what} with a number that is not finite")


def largest(values: npt.NDArray[Any]) -> float:
    """Return max|x|, 0 of none.

    >>> largest(np.float32([1, -3])), largest(np.float32([]))
    (3.0, 0.0)
    """
    return max(float(values.max()), -float(values.min())) if values.size else 0.0


def at_or_after(index: int, step: int) -> int:
    """Return the multiple of ``step`` at or after ``index``, and not below 0.

    >>> at_or_after(-3, 4), at_or_after(8, 4), at_or_after(9, 4)
    (0, 8, 12)
    """
    return max(0, -(-index // step) * step)

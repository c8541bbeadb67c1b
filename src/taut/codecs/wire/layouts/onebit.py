"""COLUMNS: one bit per element, and two numbers for every column, a run of elements.

preamble   uint32 number of runs, then for each uint32 columns, uint32 elements of a column (2^20 at most)
plus       a float32 per column, not negative: what a bit of 0 stands for
minus      a float32 per column, not positive: what a bit of 1 stands for
bits       one per element, from the low end of each byte; the spare bits of the last byte are zero
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from taut.codecs.kernels import cpu
from taut.codecs.wire.layouts.base import F32, Body, DenseLayout, at_or_after, check_length, largest, part
from taut.codecs.wire.layouts.sign_bits import check_spare
from taut.codecs.wire.payload import CHUNK, Header, Kind
from taut.errors import MalformedMessage

LONGEST = 1 << 20  # elements of a column
Runs = Sequence[tuple[int, int]]


def preamble(runs: Runs) -> npt.NDArray[np.uint32]:
    """Return the first words of the body, for runs of (columns, elements of a column).

    >>> preamble([(2, 64), (1, 3)]).tolist()
    [2, 2, 64, 1, 3]
    """
    return np.array([len(runs), *(number for run in runs for number in run)], np.uint32)


@dataclass(frozen=True)
class _Parts:
    runs: npt.NDArray[np.int64]  # (columns, elements of a column) in each row
    plus: F32
    minus: F32
    bits: Body


class OneBitLayout(DenseLayout):
    kind: ClassVar[Kind] = Kind.COLUMNS

    def check(self, head: Header, body: Body) -> None:
        parts = _read(head, body)
        if not (np.isfinite(parts.plus).all() and (parts.plus >= 0.0).all()):
            raise MalformedMessage("a COLUMNS payload with a mean of its upper elements that is negative or not finite")
        if not (np.isfinite(parts.minus).all() and (parts.minus <= 0.0).all()):
            raise MalformedMessage("a COLUMNS payload with a mean of its lower elements that is positive or not finite")
        check_spare(head, parts.bits)

    def reach(self, head: Header, body: Body) -> float:
        parts = _read(head, body)
        return max(largest(parts.plus), largest(parts.minus))

    def pieces(self, head: Header, body: Body, lo: int, hi: int) -> Iterator[tuple[int, F32]]:
        parts, base, first = _read(head, body), 0, 0
        for columns, length in parts.runs.tolist():
            plus, minus = parts.plus[first : first + columns], parts.minus[first : first + columns]
            for start in range(at_or_after(lo - base, CHUNK), min(columns * length, hi - base), CHUNK):
                size = min(CHUNK, columns * length - start)
                yield base + start, cpu.signs.choose(parts.bits, base + start, size, (start, length), plus, minus)
            base += columns * length
            first += columns


def _read(head: Header, body: Body) -> _Parts:
    """Return the parts of a body whose lengths are right; numbers and bits are not checked."""
    number = int(part(body, np.uint32, 0, 1)[0])
    runs = part(body, np.uint32, 4, 2 * number).reshape(number, 2).astype(np.int64)
    if not ((runs >= 1).all() and (runs[:, 1] <= LONGEST).all()):
        raise MalformedMessage(f"a COLUMNS payload with a run of no columns, or of columns beyond {LONGEST} elements")
    columns = int(runs[:, 0].sum())
    start = 4 + 8 * number
    check_length(head, body, start + 8 * columns + -(-head.length // 8))
    # every column took 8 bytes, so that the sum of their elements is far from overflowing
    elements = int((runs[:, 0] * runs[:, 1]).sum())
    if elements != head.length:
        raise MalformedMessage(f"a COLUMNS payload with columns of {elements} elements for a range of {head.length}")
    plus = part(body, np.float32, start, columns)
    minus = part(body, np.float32, start + 4 * columns, columns)
    return _Parts(runs, plus, minus, body[start + 8 * columns :])

"""LOWRANK: two thin matrices for each matrix.

    tensors    uint32: how many tensors the range holds, in order
    table      uint32 m, n, r for each; r = 0: m x n numbers as they are
    numbers    float32, tensor by tensor: r columns of P (m each), then r columns of Q (n each); or the m x n numbers

    value_ij = P_i1 Q_j1 + P_i2 Q_j2 + ...        in this order, one rounding per operation

so every receiver computes the same bits, on any machine and on any device. r (m + n) < m n: the body is always shorter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from taut.codecs.kernels import cpu
from taut.codecs.wire.layouts.base import F32, Body, DenseLayout, at_or_after, check_finite, check_length, largest, part
from taut.codecs.wire.payload import CHUNK, Header, Kind
from taut.errors import MalformedMessage

Table = npt.NDArray[np.int64]  # a row (m, n, r) per tensor


def lengths(table: Table) -> Table:
    """Return how many numbers each tensor takes.

    >>> lengths(np.array([[10, 20, 2], [1, 7, 0]])).tolist()
    [60, 7]
    """
    m, n, r = table.T
    found: Table = np.where(r > 0, r * (m + n), m * n)
    return found


def product(p: Any, q: Any, out: Any) -> None:
    """Compute out = p' q for p (r, m) and q (r, n): the sum of r outer products in order, for NumPy and for torch.

    >>> out = np.empty((2, 2), np.float32)
    >>> product(np.array([[1, 2]], np.float32), np.array([[3, 4]], np.float32), out)
    >>> out.tolist()
    [[3.0, 4.0], [6.0, 8.0]]
    """
    if isinstance(out, np.ndarray):
        cpu.kernels.outer(p, q, out)
        return
    import torch

    torch.mul(p[0][:, None], q[0], out=out)
    for k in range(1, len(p)):  # a matrix product would round in another order on each machine
        out += p[k][:, None] * q[k]


class LowRankLayout(DenseLayout):
    kind: ClassVar[Kind] = Kind.LOWRANK

    def check(self, head: Header, body: Body) -> None:
        table, numbers = self._read(head, body)
        check_finite(numbers, "a LOWRANK payload")
        thin = table[table[:, 2] > 0]
        if not len(thin):
            return
        ends = np.cumsum(lengths(table))[table[:, 2] > 0]
        starts = ends - lengths(thin)
        edges = np.stack([starts, starts + thin[:, 0] * thin[:, 2], ends], 1).ravel()
        tops = np.maximum.reduceat(np.append(np.abs(numbers), np.float32(0.0)), edges).astype(np.float64)
        if (thin[:, 2] * tops[0::3] * tops[1::3] > np.finfo(np.float32).max).any():
            raise MalformedMessage("a LOWRANK payload whose products are not finite")

    def reach(self, head: Header, body: Body) -> float:
        table, numbers = self._read(head, body)
        most = largest(numbers)
        return max(most, float(table[:, 2].max(initial=0)) * most * most)

    def pieces(self, head: Header, body: Body, lo: int, hi: int) -> Iterator[tuple[int, F32]]:
        table, numbers = self._read(head, body)
        start, offset = 0, 0
        for m, n, r in table.tolist():
            if r:
                p = numbers[offset : offset + r * m].reshape(r, m)
                q = numbers[offset + r * m : offset + r * (m + n)].reshape(r, n)
                yield from _rows(p, q, start, lo, hi)
                offset += r * (m + n)
            else:
                for first in range(at_or_after(lo - start, CHUNK), min(m * n, hi - start), CHUNK):
                    yield start + first, numbers[offset + first : offset + min(first + CHUNK, m * n)]
                offset += m * n
            start += m * n

    def _read(self, head: Header, body: Body) -> tuple[Table, F32]:
        tensors = int(part(body, np.uint32, 0, 1)[0])
        table = part(body, np.uint32, 4, 3 * tensors).astype(np.int64).reshape(tensors, 3)
        m, n, r = table.T
        small = head.length <= 2**31 and (m > 0).all() and (n > 0).all() and (m <= head.length // np.maximum(n, 1)).all()
        if not small or int((m * n).sum()) != head.length:
            raise MalformedMessage(f"a LOWRANK payload whose tensors do not make up {head.length} elements")
        if not ((r < np.minimum(m, n)) | (r == 0)).all() or not (r * (m + n) < np.where(r > 0, m * n, 1)).all():
            raise MalformedMessage("a LOWRANK payload of a rank that saves nothing")
        offset = 4 + 12 * tensors
        count = int(lengths(table).sum())
        check_length(head, body, offset + 4 * count)
        return table, part(body, np.float32, offset, count)


def _rows(p: F32, q: F32, start: int, lo: int, hi: int) -> Iterator[tuple[int, F32]]:
    """Yield whole rows, about a chunk of elements at a time: those that begin within ``lo..hi-1``."""
    m, n = p.shape[1], q.shape[1]
    step = min(m, max(1, CHUNK // n))
    room = np.empty((step, n), np.float32)
    for first in range(at_or_after(-(-(lo - start) // n), step), min(m, -(-(hi - start) // n)), step):
        rows = room[: m - first]
        product(p[:, first : first + step], q, rows)
        yield start + first * n, rows.reshape(-1)

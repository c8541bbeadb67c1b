"""Sums of outer products, in numba: row by row, in the processor's cache. The same bits as the torch operations of
``forms/lowrank.py``: float32, one rounding per operation (no fastmath), the same order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from taut.codecs.kernels.cpu.compilation import kernel
from taut.codecs.parallel import over

F32 = npt.NDArray[np.float32]

_columns = types.Array(types.float32, 2, "A", readonly=True)
_rows = types.Array(types.float32, 2, "C", readonly=True)
_matrix = types.Array(types.float32, 2, "C")


@kernel(types.void(_columns, _rows, _matrix))
def _outer(p, q, out):  # type: ignore[no-untyped-def]
    for i in range(out.shape[0]):
        row = out[i]
        factor, other = p[0, i], q[0]
        for j in range(row.size):
            row[j] = factor * other[j]
        for k in range(1, p.shape[0]):
            factor, other = p[k, i], q[k]
            for j in range(row.size):
                row[j] += factor * other[j]


def outer(p: F32, q: F32, out: F32) -> None:
    """out = p' q for p (r, m) and q (r, n)."""
    over(lambda start, stop: _outer(p[:, start:stop], q, out[start:stop]), 0, len(out), 1, q.shape[1])

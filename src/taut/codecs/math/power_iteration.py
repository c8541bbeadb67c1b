"""One step of power iteration, and the orthogonal columns it needs: for NumPy and for torch.

Thin matrices lie as rows (rank, m): a column of P or Q is contiguous.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from taut.codecs.compressor import Vector
from taut.codecs.parallel import run_chunks
from taut.codecs.wire.layouts.low_rank import product
from taut.codecs.wire.payload import CHUNK

DEPENDENT = 1e-6  # below this share, the rest of a column that was a sum of those before it is noise of float32
GROUP = 16  # parts of a matrix, of a chunk of elements each, whose products are summed before all others are
THIN = 8  # up to this rank a product takes as long as reading the matrix, so it is read in parts that stay in the cache
DEVICE_ELEMENTS = 1 << 22  # of a product that torch computes at once, since it needs as much memory again


def factor(matrix: Vector, basis: Vector, p: Vector, q: Vector, given: Vector) -> None:
    """Compute P = orthogonal(M basis), Q = M' P; write P Q' into ``given`` and Q into ``basis``, all in place.

    >>> matrix, basis = np.array([[2, 0, 4], [1, 0, 2]], np.float32), np.ones((1, 3), np.float32)
    >>> p, q, given = np.empty((1, 2), np.float32), np.empty((1, 3), np.float32), np.empty((2, 3), np.float32)
    >>> factor(matrix, basis, p, q, given)
    >>> given.round(5).tolist()
    [[2.0, 0.0, 4.0], [1.0, 0.0, 2.0]]
    """
    first = basis / _or_one(_largest(basis))[:, None]  # scaled, since the size of the basis would only add rounding to P
    if isinstance(matrix, np.ndarray) and len(p) <= THIN:
        _left(first, matrix, p)
        orthogonalize(p)
        _right(p, matrix, q)
    else:
        p[...] = first @ matrix.T
        orthogonalize(p)
        q[...] = p @ matrix
    multiply(p, q, given)
    basis[...] = q


def _left(first: Vector, matrix: Vector, p: Vector) -> None:
    """Compute P = M basis, by rows of M."""
    m, n = matrix.shape
    step = max(1, CHUNK // n)

    def write(start: int, stop: int) -> None:
        p[:, start:stop] = first @ matrix[start:stop].T

    run_chunks(write, 0, m, step, n)


def _right(p: Vector, matrix: Vector, q: Vector) -> None:
    """Compute Q = M' P: sums over groups of rows, each by itself, which are added in order whichever thread made them."""
    m, n = matrix.shape
    step = max(1, CHUNK // n)
    group = GROUP * step

    def summed(lo: int, hi: int) -> Vector:
        edges = [*range(lo, hi, step), hi]
        total, *others = (p[:, start:stop] @ matrix[start:stop] for start, stop in pairwise(edges))
        return sum(others, total)

    sums = run_chunks(summed, 0, m, group, n)
    q[...] = sums[0]
    for total in sums[1:]:
        q += total


def multiply(p: Vector, q: Vector, given: Vector) -> None:
    """Write P Q' into ``given``, with the bits that receivers compute."""
    m, n = given.shape
    step = m if isinstance(given, np.ndarray) else max(1, DEVICE_ELEMENTS // n)
    for start in range(0, m, step):
        product(p[:, start : start + step], q, given[start : start + step])


def orthogonalize(p: Vector) -> None:
    """Make the rows of ``p`` orthonormal, in place, by modified Gram-Schmidt; a row that is a sum of those before it
    becomes zero. Each row is projected twice, since a long row that gets short keeps rounding errors the first time.

    >>> p = np.array([[3, 4], [4, 3]], np.float32)
    >>> orthogonalize(p)
    >>> p.round(1).astype(float).round(3).tolist()
    [[0.6, 0.8], [0.8, -0.6]]
    """
    p /= _or_one(_largest(p))[:, None]
    for k in range(len(p)):
        row = p[k]
        before = (row * row).sum()
        for _ in range(2):
            for other in p[:k]:
                row -= (row * other).sum() * other
        after = (row * row).sum()
        row *= (after > DEPENDENT**2 * before) / _or_one(after) ** 0.5


def _largest(rows: Vector) -> Vector:
    return abs(rows).max(1) if isinstance(rows, np.ndarray) else rows.abs().amax(1)


def _or_one(numbers: Vector) -> Vector:
    return numbers + (numbers == 0)

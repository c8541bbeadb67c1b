"""PowerSGD: a matrix of low rank in place of each matrix, found by one step of power iteration that begins where the last
one ended.

    P = M Q;    P = orthogonal(P);    Q = M' P;    Q(M) = P Q'        Q(M) is a projection of M: |Q(M) - M| <= |M|

M is a tensor of two or more dimensions as a matrix (shape[0], the rest). Vectors are sent as they are, and so is a matrix
that would not get shorter: rank (m + n) >= m n.

This is the local form: each worker sends its own P and Q, which works without lock-step. (The paper's workers take the
mean of M Q before P is made orthogonal, which needs an all-reduce between the two products; then all have the same P.) P
and Q are products of many numbers, and their last bits depend on the library that computes them (NumPy's, torch's, a
GPU's). The values that receivers compute from P and Q do not: see ``wire/layouts/low_rank.py``.

Vogels et al. 2019, "PowerSGD: practical low-rank gradient compression for distributed optimization".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from taut.codecs.compressor import FEEDBACK_KERNELS, CompressedPiece, Compressor, CompressorState, Vector
from taut.codecs.info import CodecCost, CodecInfo
from taut.codecs.math.arrays import empty, in_host_memory, on_device_of
from taut.codecs.math.counter_rng import uniform
from taut.codecs.math.power_iteration import factor
from taut.codecs.wire.layouts.low_rank import lengths
from taut.codecs.wire.payload import Kind
from taut.specs import check_whole

SEED = 5  # of the first Q: the same for all workers
BASIS = "basis"  # in ``CompressorState.kept``: Q of every matrix that is compressed, one after the other
SIDE = 1024  # of the matrix for which the bits are stated

Row = tuple[int, int, int]


@dataclass(frozen=True)
class PowerSGD(Compressor):
    """``rank``: of the matrices that are sent.

    >>> PowerSGD(2).facts.bits
    0.125
    >>> v = np.outer(np.arange(1, 9), np.arange(1, 9)).astype(np.float32)
    >>> q = PowerSGD(1).compress(v.ravel(), 0, CompressorState(64, ((8, 8),))).q
    >>> bool(np.allclose(q, v.ravel(), rtol=1e-5))
    True
    """

    name: ClassVar[str] = "powersgd"
    kernels = (*FEEDBACK_KERNELS, "kernels.fill_uniform", "kernels._outer")
    kind: ClassVar[Kind] = Kind.LOWRANK
    whole: ClassVar[bool] = True

    rank: int = 2

    def __post_init__(self) -> None:
        check_whole(self, "rank", 1, "try rank=1")

    @property
    def facts(self) -> CodecInfo:
        return CodecInfo(
            title="two thin matrices for each matrix",
            bits=min(32.0, 64.0 * self.rank / SIDE),
            error=1.0,
            bound=f"a projection: |Q(v) - v| <= |v|; rank (m + n) numbers for m n (bits: of a {SIDE} x {SIDE} matrix)",
            paper="Vogels et al. 2019",
            cost=CodecCost(1.95e-9, 21.2e-9, 0.3116, 84.5e-6),
        )

    def compress(self, v: Vector, lo: int, memory: CompressorState) -> CompressedPiece | None:
        rows = layout(memory.shapes, self.rank)
        table = np.array(rows, np.int64)
        counts = lengths(table).tolist()
        basis = memory.kept.get(BASIS)
        if basis is None:
            basis = memory.kept[BASIS] = _first(rows, v)
        numbers, q = empty(sum(counts), v), empty(len(v), v)
        start = offset = at = 0
        for (m, n, r), count in zip(rows, counts, strict=True):
            taken, given = v[start : start + m * n], q[start : start + m * n]
            if r:
                p, thin = numbers[offset : offset + r * m], numbers[offset + r * m : offset + count]
                some = basis[at : at + r * n].reshape(r, n)
                factor(taken.reshape(m, n), some, p.reshape(r, m), thin.reshape(r, n), given.reshape(m, n))
                at += r * n
            else:
                numbers[offset : offset + count] = taken
                given[:] = taken
            start, offset = start + m * n, offset + count
        sent = in_host_memory(numbers)
        _revive(basis, rows, sent)
        preamble = np.array([len(rows), *table.ravel()], np.uint32)
        return CompressedPiece((preamble, sent), q)


@lru_cache
def layout(shapes: tuple[tuple[int, ...], ...], rank: int) -> tuple[Row, ...]:
    """Return (m, n, r) of the matrices that a vector of these tensors is split into; r = 0: sent as it is. A flat vector
    of unknown tensors is split into a nearly square matrix and the few elements that are left.

    >>> layout(((8, 4, 3), (8,), (3, 3)), 2)
    ((8, 12, 2), (1, 17, 0))
    >>> layout(((1000,),), 2)
    ((27, 37, 2), (1, 1, 0))
    """
    if len(shapes) == 1 and len(shapes[0]) == 1:
        size = shapes[0][0]
        m = _side(size, rank)
        shapes = ((m, size // m), (size - m * (size // m),))
    rows: list[Row] = []
    for shape in shapes:
        m, n = (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, math.prod(shape))
        if rank * (m + n) < m * n:
            rows.append((m, n, rank))
        elif m * n and rows and not rows[-1][2]:  # joined with the one before, which is sent as it is, too
            rows[-1] = (1, rows[-1][1] + m * n, 0)
        elif m * n:
            rows.append((1, m * n, 0))
    return tuple(rows)


def _side(size: int, rank: int) -> int:
    """Return the side for which a matrix and the rest take the fewest numbers, at the root of the size or a little
    below."""
    root = max(1, math.isqrt(size))
    sides = range(root, max(0, root - 256, root // 2), -1)
    return min(sides, key=lambda m: rank * (m + size // m) + size % m)


def _first(rows: Sequence[Row], v: Vector) -> Vector:
    """Return standard normal numbers for every Q, from a hash (Box and Muller). They are made on the host, for a GPU
    too."""
    count = sum(n * r for _, n, r in rows)
    like = np.empty(count, np.float32)
    length, angle = uniform(SEED, 0, 0, like), uniform(SEED, 1, 0, like)
    normal = np.sqrt(-2.0 * np.log1p(-length)) * np.cos(np.float32(2.0 * math.pi) * angle)
    return on_device_of(normal.astype(np.float32), v)


def _revive(basis: Vector, rows: Sequence[Row], sent: Any) -> None:
    """Start a column of Q anew that is zero (there was nothing to send in that direction); it would stay zero."""
    at = offset = 0
    for m, n, r in rows:
        columns = sent[offset + r * m : offset + r * (m + n)].reshape(r, n)
        for k in range(r):
            if not columns[k].any():
                fresh = uniform(SEED, 2 + k, at, columns[k]) - np.float32(0.5)
                basis[at + k * n : at + (k + 1) * n] = on_device_of(fresh, basis)
        at, offset = at + r * n, offset + (r * (m + n) if r else m * n)

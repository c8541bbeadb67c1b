"""1-bit: one bit per element, and two means for every column.

    Q(v)_i = mean of the elements >= 0 of its column where v_i >= 0, else of those < 0        |Q(v) - v|^2 <= |v|^2

No other two numbers per column come nearer to v. A column holds the weights of one output of a layer: the first axis of a
tensor counts columns, all other axes lie within one; a tensor of one axis is one column, and a column of more than 2^20
elements is split. With ``column``, columns are runs of that many elements, whatever the tensors, so that a vector can be
scanned in fragments. Means are of sums in float64, in a fixed order (``ordered_sums.py``), rounded to float32.

Seide et al. 2014, "1-bit stochastic gradient descent and its application to data-parallel distributed training of speech
DNNs".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from taut.codecs.algorithms.sign import packed_torch
from taut.codecs.compressor import FEEDBACK_KERNELS, Array, CompressedPiece, Compressor, CompressorState, Vector
from taut.codecs.info import CodecCost, CodecInfo
from taut.codecs.kernels import cpu
from taut.codecs.math.ordered_sums import CHUNK, fold
from taut.codecs.wire.layouts.onebit import LONGEST, Runs, preamble
from taut.codecs.wire.layouts.sign_bits import minus_bits
from taut.codecs.wire.payload import Kind
from taut.errors import Misuse

PIECE = 1 << 16
LONGEST_FUSED = 1 << 14  # elements of a column that a GPU takes in one pass
TYPICAL = 1024  # elements of a column, where ``bits`` must be stated without knowing the model


@dataclass(frozen=True)
class OneBit(Compressor):
    """``column``: elements of a column, a power of two from 64 to 2^20; 0: columns follow the tensors.

    >>> v = np.array([1.0, 3.0, -1.0, -2.0, 0.0, 5.0], np.float32)
    >>> OneBit().compress(v, 0, CompressorState(6, ((2, 3),))).q.tolist()
    [2.0, 2.0, -1.0, -2.0, 2.5, 2.5]
    """

    name: ClassVar[str] = "onebit"
    kernels = (*FEEDBACK_KERNELS, "signs._choose", "signs._columns")
    kind: ClassVar[Kind] = Kind.COLUMNS

    column: int = 0

    def __post_init__(self) -> None:
        given = self.column
        if given and (not 64 <= given <= LONGEST or given & (given - 1)):
            raise Misuse(
                f"onebit: column={given}",
                "a power of two from 64 to 2^20, or 0 for columns that follow the tensors",
                "try column=2048",
            )

    @property
    def whole(self) -> bool:  # type: ignore[override]
        return not self.column

    @property
    def piece(self) -> int:  # type: ignore[override]
        return max(PIECE, self.column) if self.column else 0

    @property
    def facts(self) -> CodecInfo:
        return CodecInfo(
            title="the sign of each element, as one of two means of its column",
            bits=1.0 + 64.0 / (self.column or TYPICAL),
            error=1.0,
            bound="no two numbers per column come nearer; at most (1 - 1/n) |v|^2 for columns of n",
            paper="Seide et al. 2014",
            cost=CodecCost(2.22e-9, 5.8e-9, 1.125, 38.6e-6),
        )

    def compress(self, v: Vector, lo: int, memory: CompressorState) -> CompressedPiece | None:
        runs = fixed_runs(len(v), self.column) if self.column else runs_of(memory.shapes)
        plus, minus, bits, q = _columns_numpy(v, runs) if isinstance(v, np.ndarray) else _columns_torch(v, runs)
        if self.column:
            return CompressedPiece((plus, minus, bits), q)
        return CompressedPiece((preamble(runs), plus, minus, bits), q) if plus.any() or minus.any() else None

    def fused(
        self, w: Vector, b: Vector, r: Vector, share: float, lo: int, memory: CompressorState
    ) -> CompressedPiece | None:
        if isinstance(w, np.ndarray) or not 0 < self.column <= LONGEST_FUSED:
            return None
        from taut.codecs.kernels.triton.blocks import onebit

        return CompressedPiece(onebit(w, b, r, share, self.column), None, elements=len(w))

    def body(self, pieces: Sequence[CompressedPiece], length: int) -> tuple[Array, ...]:
        joined = super().body(pieces, length)
        return (preamble(fixed_runs(length, self.column)), *joined) if self.column else joined


def fixed_runs(length: int, column: int) -> list[tuple[int, int]]:
    """Split ``length`` elements into columns of ``column``, the last perhaps shorter; return runs as `runs_of` does.

    >>> fixed_runs(300, 128), fixed_runs(64, 128)
    ([(2, 128), (1, 44)], [(1, 64)])
    """
    runs = [(length // column, column), (1, length % column)]
    return [(columns, elements) for columns, elements in runs if columns and elements]


def runs_of(shapes: Sequence[tuple[int, ...]]) -> Runs:
    """Return runs of (columns, elements of a column) for consecutive tensors of these shapes; equal neighbours are
    joined.

    >>> runs_of([(2, 3, 4), (5,), (), (2, 1)])
    [(2, 12), (1, 5), (3, 1)]
    >>> runs_of([(2, 2**20 + 1)])
    [(1, 1048576), (1, 1), (1, 1048576), (1, 1)]
    """
    runs: list[tuple[int, int]] = []
    for shape in shapes:
        size = int(np.prod(shape, dtype=np.int64))
        rows = shape[0] if len(shape) > 1 else 1
        if not size:
            continue
        length = size // rows
        for columns, elements in [(rows, length)] if length <= LONGEST else rows * fixed_runs(length, LONGEST):
            joins = bool(runs) and runs[-1][1] == elements
            runs.append((columns + (runs.pop()[0] if joins else 0), elements))
    return runs


Compressed = tuple[Array, Array, Array, Vector]  # plus, minus, bits, q


def _columns_numpy(v: Any, runs: Runs) -> Compressed:
    q = np.empty(len(v), np.float32)
    means, start = [], 0
    for number, length in runs:
        stop = start + number * length
        means.append(cpu.signs.columns(v[start:stop], length, q[start:stop]))
        start = stop
    plus, minus = (np.concatenate(each) for each in zip(*means, strict=True))
    return plus, minus, minus_bits(v), q


def _columns_torch(v: Any, runs: Runs) -> Compressed:
    """Compress in torch operations, at most ``CHUNK`` elements at once, so that float64 copies stay small."""
    import torch

    q = torch.empty_like(v)
    means, start = [], 0
    for number, length in runs:
        step = max(1, CHUNK // length)
        for first in range(0, number, step):
            stop = start + min(step, number - first) * length
            means.append(_means_torch(v[start:stop].view(-1, length), q[start:stop].view(-1, length)))
            start = stop
    plus, minus = (torch.cat(each).cpu().numpy() for each in zip(*means, strict=True))
    return plus, minus, packed_torch(v < 0), q


def _means_torch(v: Any, q: Any) -> tuple[Any, Any]:
    """Return both means of every row of v; write the means that stand for its elements into q."""
    import torch

    under = v < 0
    below = under.sum(1)
    above = v.shape[1] - below
    wide = v.double()
    # a NaN goes into the upper sum, so that it shows in the mean
    high, low = fold(wide.masked_fill(v <= 0, 0.0)), fold(wide.masked_fill(~under, 0.0))
    plus = (high / above.clamp(min=1)).float()
    minus = (low / below.clamp(min=1)).float()
    q.copy_(torch.where(under, minus[:, None], plus[:, None]))
    return plus, minus

"""Chunked: the largest elements of each chunk of 4096, as signs and one of two magnitudes.

    K = the k largest |v_i| of the chunk;    a = mean of |v_i| over K
    Q(v)_i = sign(v_i) (mean of the |v_j| in K above a, if |v_i| is; else mean of the others)    for i in K, else 0

An entry takes 12 bits for its index, one for its sign and one for its magnitude. With ``bits=1`` all entries of a chunk
have the magnitude a. A mean never errs by more than what it stands for: |Q(v) - v|^2 <= |v|^2. k is rounded up; of equal
elements the first are taken. All chunks send equally many, so no part of the model waits for ever.

Sarfi et al. 2025, "Communication efficient LLM pre-training with SparseLoCo" (top-k by chunk, two bits); its quantizer
has four levels between limits by the standard deviation, with the mean of each as its value: of the largest elements, two
of each sign.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from taut.codecs.compressor import Array, CompressedPiece, Compressor, CompressorState, Vector
from taut.codecs.info import CodecCost, CodecInfo
from taut.codecs.math.arrays import in_host_memory, on_device_of
from taut.codecs.params import check_density
from taut.codecs.wire.layouts.chunked import CHUNK, packed, top_of
from taut.codecs.wire.payload import Kind
from taut.errors import Misuse

_MASK = 0x7FFFFFFF  # of a float's bits: those that rise with its magnitude


@dataclass(frozen=True)
class Chunked(Compressor):
    """``density``: the share of each chunk that is sent. ``bits``: of a value, its sign and, if 2, which magnitude.

    >>> v = np.float32([1.0, -6.0, 0.5, 4.0, 2.0, -2.0])
    >>> Chunked(0.5).compress(v, 0, CompressorState(6)).q.tolist(), Chunked().facts.bits
    ([-6.0, 3.0, 3.0], 0.155625)
    """

    name: ClassVar[str] = "chunked"
    kernels = ("feedback._grow",)
    kind: ClassVar[Kind] = Kind.CHUNKED
    piece: ClassVar[int] = 16 * CHUNK

    density: float = 0.01
    bits: int = 2

    def __post_init__(self) -> None:
        check_density(self)
        if self.bits not in (1, 2):
            raise Misuse(f"chunked: bits={self.bits}", "1 (signs) or 2 (two magnitudes)", "topk sends values as they are")

    @property
    def top(self) -> int:
        """Return how many elements of a whole chunk are sent."""
        return max(1, math.ceil(self.density * CHUNK))

    @property
    def facts(self) -> CodecInfo:
        magnitudes = "one of two magnitudes" if self.bits == 2 else "signs of one magnitude"
        return CodecInfo(
            title=f"the largest elements of each chunk of 4096, as {magnitudes}",
            bits=self.density * (12.0 + self.bits) + 32.0 * self.bits / CHUNK,
            error=1.0,
            bound="of the largest, no two means come nearer; at most (1 - 1/4096) |v|^2",
            paper="Sarfi et al. 2025",
            cost=CodecCost(14.2e-9, 23.7e-9, 0.1557, 179e-6),
        )

    def compress(self, v: Vector, lo: int, memory: CompressorState) -> CompressedPiece | None:
        whole = len(v) - len(v) % CHUNK
        found = [kept(v[:whole].reshape(-1, CHUNK), self.top)] if whole else []
        if whole < len(v):
            found.append(kept(v[whole:].reshape(1, -1), top_of(len(v) - whole, self.top)))
        rows = [(indices, in_host_memory(values)) for indices, values in found]
        read = [(indices, *self._levels(values)) for indices, values in rows]
        indices, scales, signs, upper, q = (np.concatenate([one[n].reshape(-1) for one in read]) for n in range(5))
        chunk = np.repeat(np.arange(-(-len(v) // CHUNK)), self.top)[: len(indices)]
        bits = [np.packbits(each, bitorder="little") for each in (signs, upper)[: self.bits]]
        body = (scales, packed(indices.astype(np.uint16)), *bits)
        return CompressedPiece(body, on_device_of(q, v), on_device_of(CHUNK * chunk + indices, v))

    def _levels(self, values: npt.NDArray[np.float32]) -> tuple[Array, Array, Array, Array]:
        """Return the magnitudes of each row; of its entries the sign, which magnitude, and the value it stands for."""
        magnitudes = np.abs(values).astype(np.float64)
        mean = magnitudes.mean(axis=1, keepdims=True)
        upper = (magnitudes > mean) if self.bits == 2 else np.zeros(magnitudes.shape, np.bool_)
        above = upper.sum(axis=1, keepdims=True)
        high = np.where(upper, magnitudes, 0.0).sum(axis=1, keepdims=True)
        low = (magnitudes.sum(axis=1, keepdims=True) - high).clip(min=0.0) / np.maximum(1, values.shape[1] - above)
        means = np.concatenate([low, high / np.maximum(1, above)], axis=1)[:, : self.bits].astype(np.float32)
        signs = values < 0
        q = np.take_along_axis(means, upper.astype(np.intp), axis=1)
        return means, signs, upper, np.where(signs, -q, q)

    def body(self, pieces: Sequence[CompressedPiece], length: int) -> tuple[Array, ...]:
        return np.array([self.top, self.bits], np.uint16), *super().body(pieces, length)


def kept(rows: Any, top: int) -> tuple[npt.NDArray[np.int64], Vector]:
    """Return the rising indices of the ``top`` largest magnitudes of each row, in host memory, and the values there.

    >>> [each.tolist() for each in kept(np.float32([[1, -3, 3, 3], [0, 0, 0, 2]]), 2)]
    [[[1, 2], [0, 3]], [[-3.0, 3.0], [0.0, 2.0]]]
    """
    if isinstance(rows, np.ndarray):
        bits = np.ascontiguousarray(rows).view(np.int32) & np.int32(_MASK)
        edge = np.partition(bits, bits.shape[1] - top, axis=1)[:, bits.shape[1] - top, None]
        equal, above = bits == edge, bits > edge
        keep = above | (equal & (equal.cumsum(axis=1) <= top - above.sum(axis=1, keepdims=True)))
        indices = np.nonzero(keep)[1].reshape(len(rows), top)
        return indices, np.take_along_axis(rows, indices, axis=1)
    import torch

    bits = rows.contiguous().view(torch.int32) & _MASK
    edge = bits.topk(top, dim=1).values[:, -1:]
    equal, above = bits == edge, bits > edge
    keep = above | (equal & (equal.cumsum(1) <= top - above.sum(1, keepdim=True)))
    there = keep.nonzero()[:, 1].view(len(rows), top)
    return there.cpu().numpy(), rows.gather(1, there)

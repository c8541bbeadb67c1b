"""Top-k: the largest elements, as they are.

    Q(v)_i = v_i where |v_i| is among the k = density * n largest, else 0        |Q(v) - v|^2 <= (1 - k/n) |v|^2

k is rounded up, so that the bound with the density holds too; of equal elements the first are taken, and zeros are never
sent. ``topk_select.py`` finds them without sorting: mostly in one pass.

Aji and Heafield 2017, "Sparse communication for distributed gradient descent"; Stich et al. 2018, "Sparsified SGD with
memory".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from taut.codecs.compressor import CompressedPiece, Compressor, CompressorState, Vector
from taut.codecs.info import CodecCost, CodecInfo
from taut.codecs.math.arrays import in_host_memory
from taut.codecs.math.topk_select import SELECTION_KERNELS, largest
from taut.codecs.params import check_density
from taut.codecs.wire.payload import Kind

MUCH_FUSED = 16  # from one element in 16 on, sorting candidates on a GPU would not pay


@dataclass(frozen=True)
class TopK(Compressor):
    """``density``: the share of the elements that is sent, at least one of them.

    >>> TopK(0.001).facts.bits
    0.064
    """

    name: ClassVar[str] = "topk"
    kernels = ("feedback._grow", *SELECTION_KERNELS)
    kind: ClassVar[Kind] = Kind.SPARSE

    density: float = 0.01

    def __post_init__(self) -> None:
        check_density(self)

    @property
    def facts(self) -> CodecInfo:
        return CodecInfo(
            title="the largest elements, as they are",
            bits=64.0 * self.density,
            error=1.0 - self.density,
            bound="|Q(v) - v|^2 <= (1 - density) |v|^2",
            paper="Aji and Heafield 2017",
            cost=CodecCost(1.78e-9, 4.03e-9, 0.64, 62.8e-6),
            advised=3,
        )

    def compress(self, v: Vector, lo: int, memory: CompressorState) -> CompressedPiece | None:
        indices, values = largest(v, self._wanted(len(v)))
        return sparse_piece(indices, values) if len(indices) else None

    def fused(
        self, w: Vector, b: Vector, r: Vector, share: float, lo: int, memory: CompressorState
    ) -> CompressedPiece | None:
        wanted = self._wanted(len(w))
        if isinstance(w, np.ndarray) or wanted * MUCH_FUSED > len(w):
            return None
        from taut.codecs.kernels.triton.topk import topk

        indices, values = topk(w, b, r, share, wanted)
        return CompressedPiece((indices, values), None, elements=len(indices))

    def _wanted(self, length: int) -> int:
        return max(1, math.ceil(self.density * length))


def sparse_piece(indices: Vector, values: Vector) -> CompressedPiece:
    """Return the piece that holds ``values`` at the rising ``indices``."""
    return CompressedPiece((in_host_memory(indices).astype(np.uint32), in_host_memory(values)), values, indices)

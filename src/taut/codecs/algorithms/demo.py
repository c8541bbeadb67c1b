"""DeMo: a momentum of which only the largest cosine coefficients are shared, and taken out.

    m = decay m + change;    q = inverse transform of the ``top`` largest coefficients of each chunk;    m -= q

A chunk is 64 x 64 elements of the flat vector, transformed both ways (DCT-II). The rest at the end of a range is
transformed in lines of 64, of which an eighth as many coefficients are sent (at least one); the last line is padded with
zeros. The residual of the error feedback is the momentum, and it decays.

In synchronous rounds the paper steps by the sign of the sum (``sign``): all elements move by the learning rate, so give
the optimizer one that suits signs (Lion's paper: 3 to 10 times smaller than for AdamW). Asynchronous strategies apply
updates as they arrive.

Peng et al. 2024, "DeMo: decoupled momentum optimization".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from taut.codecs.compressor import Array, CompressedPiece, Compressor, CompressorState, Vector
from taut.codecs.info import CodecCost, CodecInfo
from taut.codecs.math.dct import CHUNK, DCT_KERNELS, keep_chunks, keep_lines
from taut.codecs.wire.layouts.dct import top_of_line
from taut.codecs.wire.payload import Kind
from taut.errors import Misuse
from taut.specs import check_whole


@dataclass(frozen=True)
class DeMo(Compressor):
    """``top``: coefficients of each chunk of 4096 elements. ``decay``: of the momentum, once per update. ``sign``: in
    synchronous rounds, take the sign of the sum.

    >>> DeMo().facts.bits
    0.375
    >>> wave = np.cos(0.3 * np.arange(64)).astype(np.float32)
    >>> piece = DeMo(32).compress(wave, 0, CompressorState(64))
    >>> piece.body[0].tolist(), bool(np.abs(piece.q - wave).max() < 0.3)
    ([2, 4, 6, 8], True)
    """

    name: ClassVar[str] = "demo"
    not_for_differences: ClassVar[str] = "it adds momentum to what it is given, and would send more than the difference"
    kernels = (*DCT_KERNELS, "kernels._add_values", "feedback._change", "feedback._infinite", "feedback._take")
    kind: ClassVar[Kind] = Kind.COSINES
    piece: ClassVar[int] = 16 * CHUNK

    top: int = 32
    decay: float = 0.999
    sign: bool = True

    def __post_init__(self) -> None:
        check_whole(self, "top", 1, "try top=1")
        if self.top > CHUNK:
            raise Misuse(f"demo: top={self.top}", f"at most {CHUNK}, all coefficients of a chunk", "try top=32")
        if not 0.0 <= self.decay <= 1.0:
            raise Misuse(f"demo: decay={self.decay:g}", "a number from 0 to 1", "try decay=0.999")

    @property
    def facts(self) -> CodecInfo:
        return CodecInfo(
            title="the largest cosine coefficients of a momentum",
            bits=48.0 * self.top / CHUNK,
            error=1.0 - self.top / CHUNK,
            bound="|Q(v) - v|^2 <= (1 - top / 4096) |v|^2",
            paper="Peng et al. 2024",
            cost=CodecCost(6.64e-9, 56.1e-9, 0.3744, 33.7e-6),
        )

    def grow(self, r: Vector, change: Vector, lo: int, memory: CompressorState) -> None:
        r *= float(np.float32(self.decay))
        r += change

    def compress(self, v: Vector, lo: int, memory: CompressorState) -> CompressedPiece | None:
        edge = len(v) - len(v) % CHUNK
        parts = [keep_chunks(v[:edge], self.top)] if edge else []
        if edge < len(v):
            parts.append(keep_lines(v[edge:], top_of_line(self.top)))
        if len(parts) == 1:
            return CompressedPiece(parts[0][:2], parts[0][2])
        indices, values = (np.concatenate([part[field] for part in parts]) for field in (0, 1))
        return CompressedPiece((indices, values), _joined([part[2] for part in parts]))

    def body(self, pieces: Sequence[CompressedPiece], length: int) -> tuple[Array, ...]:
        return np.array([self.top, 0], np.uint16), *super().body(pieces, length)

    @property
    def votes(self) -> bool:
        return self.sign

    def conclude(self, total: Vector, scale: float) -> None:
        """Replace the sum by its sign if ``sign``: the learning rate is then the step."""
        if self.sign and isinstance(total, np.ndarray):
            np.sign(total, out=total)
        elif self.sign:
            total.sign_()


def _joined(parts: list[Vector]) -> Vector:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import torch

    return torch.cat(parts)

"""int8: whole numbers from -127 to 127, times a scale per block of 256.

    scale = max|v| / 127 of the block;    Q(v)_i = scale * round(v_i / scale)        |Q(v)_i - v_i| <= scale / 2

Dettmers 2016, "8-bit approximations for parallelism in deep learning" (blocks: Dettmers et al. 2022).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from taut.codecs.compressor import Array, CompressedPiece, Compressor, CompressorState, Vector
from taut.codecs.info import CodecCost, CodecInfo
from taut.codecs.kernels import cpu
from taut.codecs.math.quantize import LEVEL_KERNELS, MOST, largest_scale, rounded
from taut.codecs.wire.layouts.int_levels import preamble
from taut.codecs.wire.payload import Kind

BLOCK = 256


@dataclass(frozen=True)
class Int8(Compressor):
    """The codec `int8`, without hyper-parameters: blocks of 256.

    >>> round(Int8().facts.bits, 3)
    8.125
    """

    name: ClassVar[str] = "int8"
    fine: ClassVar[bool] = True
    kernels = ("kernels._add_values", *LEVEL_KERNELS, "levels.round_blocks", "levels.update_levels")
    kind: ClassVar[Kind] = Kind.LEVELS
    piece: ClassVar[int] = 1 << 16

    @property
    def facts(self) -> CodecInfo:
        return CodecInfo(
            title="whole numbers from -127 to 127, a scale per block of 256",
            bits=8.0 + 32.0 / BLOCK,
            error=BLOCK / (4.0 * 127.0**2),
            bound="|Q(v)_i - v_i| <= max|v| / 254 of its block of 256, + 2^-140",
            paper="Dettmers 2016",
            cost=CodecCost(1.96e-9, 0.865e-9, 8.125, 27.0e-6),
            advised=2,
        )

    def compress(self, v: Vector, lo: int, memory: CompressorState) -> CompressedPiece | None:
        return rounded(v, BLOCK)

    def fused(
        self, w: Vector, b: Vector, r: Vector, share: float, lo: int, memory: CompressorState
    ) -> CompressedPiece | None:
        if isinstance(w, np.ndarray):
            scales, numbers = cpu.levels.update_levels(w, b, r, share, BLOCK, MOST, largest_scale(MOST))
            return CompressedPiece((scales, numbers.view(np.uint8)), None, elements=len(w))
        from taut.codecs.kernels.triton.blocks import levels8, levels8_there

        found: Any = levels8_there if memory.on_device else levels8
        return CompressedPiece(found(w, b, r, share, BLOCK), None, elements=len(w))

    def body(self, pieces: Sequence[CompressedPiece], length: int) -> tuple[Array, ...]:
        return preamble(8, BLOCK), *super().body(pieces, length)

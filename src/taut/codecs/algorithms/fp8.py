"""fp8: floats of 8 bits (e4m3), times a scale per block of 128.

    scale = max|v| / 448 of the block;    Q(v)_i = scale * e4m3(v_i / scale)

Compared to int8, which has as many bits, small elements keep their relative precision, and large ones have less of it.

Micikevicius et al. 2022, "FP8 formats for deep learning" (blocks: DeepSeek-AI 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from taut.codecs.compressor import CompressedPiece, Compressor, CompressorState, Vector
from taut.codecs.info import CodecCost, CodecInfo
from taut.codecs.kernels import cpu
from taut.codecs.math.quantize import largest_scale, on_host, quotients, scales_of
from taut.codecs.wire.layouts.fp8 import BLOCK, GREATEST
from taut.codecs.wire.payload import Kind


@dataclass(frozen=True)
class Fp8(Compressor):
    """The codec `fp8`, without hyper-parameters: blocks of 128.

    Rounding to 4 significant bits changes v_i by at most 1/17 of itself; below 2^-6 scales v_i is rounded to multiples of
    2^-9 scales, by at most 2^-10 / 448 of the largest. The squares of both, summed over a block, are below 2^-8 |v|^2,
    with room for the roundings of float32.

    >>> Fp8().facts.bits
    8.25
    """

    name: ClassVar[str] = "fp8"
    fine: ClassVar[bool] = True
    kernels = ("kernels._add_values", "levels.read_fp8", "levels.update_fp8", "levels.write_fp8", "levels.block_maxima")
    kind: ClassVar[Kind] = Kind.EIGHTHS
    piece: ClassVar[int] = 1 << 16

    @property
    def facts(self) -> CodecInfo:
        return CodecInfo(
            title="8-bit floats (e4m3), a scale per block of 128",
            bits=8.0 + 32.0 / BLOCK,
            error=2.0**-8,
            bound="|Q(v)_i - v_i| <= |v_i| / 16, or 2^-18 max|v| of its block of 128, + 2^-140",
            paper="Micikevicius et al. 2022",
            cost=CodecCost(2.14e-9, 1.23e-9, 8.25, 22.9e-6),
        )

    def compress(self, v: Vector, lo: int, memory: CompressorState) -> CompressedPiece | None:
        scales = scales_of(v, BLOCK, GREATEST)
        if isinstance(v, np.ndarray):
            codes, q = cpu.levels.write_fp8(v, BLOCK, scales)
            return CompressedPiece((scales, codes), q)
        import torch

        x = quotients(v, BLOCK, scales).clamp_(-GREATEST, GREATEST).to(torch.float8_e4m3fn)
        q = (x.to(torch.float32) * scales[:, None]).view(-1)[: len(v)]
        return CompressedPiece(on_host(scales, x.view(torch.uint8).view(-1)[: len(v)]), q)

    def fused(
        self, w: Vector, b: Vector, r: Vector, share: float, lo: int, memory: CompressorState
    ) -> CompressedPiece | None:
        if not isinstance(w, np.ndarray):
            return None
        body = cpu.levels.update_fp8(w, b, r, share, BLOCK, largest_scale(GREATEST))
        return CompressedPiece(body, None, elements=len(w))

"""fp16: 16-bit floats, times a power of two per block of 65536 so that all of them are in range.

    scale = 2^(e - 15), where 2^e <= max|v| < 2^(e + 1) of the block;    Q(v)_i = scale * float16(v_i / scale)

Micikevicius et al. 2018, "Mixed precision training" (which has one scale for all, against underflow).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from taut.codecs.compressor import FEEDBACK_KERNELS, CompressedPiece, Compressor, CompressorState, Vector
from taut.codecs.info import CodecCost, CodecInfo
from taut.codecs.kernels import cpu
from taut.codecs.math.quantize import block_maxima, in_blocks, nan_unless_finite, on_host
from taut.codecs.wire.layouts.fp16_bf16 import BLOCK, LEAST
from taut.codecs.wire.payload import Kind

GREATEST = 65504.0  # of a float16
_EXPONENT_SHIFT = 23
_TWICE_THE_BIAS = 254


@dataclass(frozen=True)
class Fp16(Compressor):
    """The codec `fp16`, without hyper-parameters.

    Why the bound holds for every v: within a block v / scale is below 2^16. A number above 65504 is set to 65504, which
    changes it by at most 2^-11 of itself, as rounding does to all numbers of at least 2^-14. Those below 2^-14 are
    rounded to multiples of 2^-24, by at most 2^-25 = 2^-40 of the largest: squared and summed over the block, 2^-64 of
    |v|^2. (No scale is below 2^-126: all floats that would need one are whole multiples of 2^-149, and so of 2^-23
    scales.)

    >>> round(Fp16().facts.bits, 3)
    16.0
    """

    name: ClassVar[str] = "fp16"
    fine: ClassVar[bool] = True
    kernels = (*FEEDBACK_KERNELS, "floats.read_fp16", "floats.write_fp16", "levels.block_maxima")
    kind: ClassVar[Kind] = Kind.HALVES
    piece: ClassVar[int] = BLOCK

    @property
    def facts(self) -> CodecInfo:
        return CodecInfo(
            title="16-bit floats, a power of two as scale per block of 65536",
            bits=16.0 + 32.0 / BLOCK,
            error=2.0**-22 + 2.0**-64,
            bound="|Q(v)_i - v_i| <= 2^-11 |v_i|, or 2^-40 max|v| of its block",
            paper="Micikevicius et al. 2018",
            cost=CodecCost(7.41e-9, 0.731e-9, 16.0, 38.2e-6),
        )

    def compress(self, v: Vector, lo: int, memory: CompressorState) -> CompressedPiece | None:
        scales, inverses = _scales(block_maxima(v, BLOCK))
        if isinstance(v, np.ndarray):
            codes, q = cpu.floats.write_fp16(v, BLOCK, scales, inverses)
            return CompressedPiece((scales, codes), q)
        import torch

        x = (in_blocks(v, BLOCK) * inverses[:, None]).clamp_(-GREATEST, GREATEST).to(torch.float16)
        q = (x.to(torch.float32) * scales[:, None]).view(-1)[: len(v)]
        there, codes = on_host(scales, x.view(-1)[: len(v)])
        return CompressedPiece((there, codes.view(np.uint16)), q)


def _scales(largest: Vector) -> tuple[Any, Any]:
    """Return the power of two of each block, and its inverse, made of their exponents."""
    lib: Any = np
    if not isinstance(largest, np.ndarray):
        import torch as lib
    exponents = ((largest.view(lib.int32) >> _EXPONENT_SHIFT) - 15).clip(LEAST)
    scales, inverses = exponents << _EXPONENT_SHIFT, (_TWICE_THE_BIAS - exponents) << _EXPONENT_SHIFT
    return scales.view(lib.float32) + nan_unless_finite(largest), inverses.view(lib.float32)

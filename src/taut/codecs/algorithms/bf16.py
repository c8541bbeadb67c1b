"""bf16: the upper half of a float32, rounded.

    Q(v)_i = bfloat16(v_i)        |Q(v)_i - v_i| <= 2^-8 |v_i|

Kalamkar et al. 2019, "A study of bfloat16 for deep learning training".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from taut.codecs.compressor import FEEDBACK_KERNELS, CompressedPiece, Compressor, CompressorState, Vector
from taut.codecs.info import CodecCost, CodecInfo
from taut.codecs.kernels import cpu
from taut.codecs.math.quantize import on_host
from taut.codecs.wire.payload import Kind

GREATEST = (2.0 - 2.0**-7) * 2.0**127  # of a bfloat16


@dataclass(frozen=True)
class Bf16(Compressor):
    """The codec `bf16`, without hyper-parameters and without a scale: its range is that of float32. A number that would
    round to infinity becomes the greatest bfloat16, which is still within the bound. Below 2^-126 steps are of 2^-133,
    and no finer.

    >>> Bf16().facts.bits
    16.0
    """

    name: ClassVar[str] = "bf16"
    fine: ClassVar[bool] = True
    kernels = (*FEEDBACK_KERNELS, "floats.write_bf16")
    kind: ClassVar[Kind] = Kind.BRAINS
    piece: ClassVar[int] = 1 << 16

    @property
    def facts(self) -> CodecInfo:
        return CodecInfo(
            title="the upper 16 bits of each float32",
            bits=16.0,
            error=2.0**-16,
            bound="|Q(v)_i - v_i| <= 2^-8 |v_i|, or 2^-134",
            paper="Kalamkar et al. 2019",
            cost=CodecCost(5.26e-9, 0.576e-9, 16.0, 20.5e-6),
        )

    def compress(self, v: Vector, lo: int, memory: CompressorState) -> CompressedPiece | None:
        if isinstance(v, np.ndarray):
            codes, bits = cpu.floats.write_bf16(v.view(np.uint32))
            return CompressedPiece((codes,), bits.view(np.float32))
        import torch

        x = v.clamp(-GREATEST, GREATEST).to(torch.bfloat16)
        (codes,) = on_host(x.view(torch.int16))
        return CompressedPiece((codes.view(np.uint16),), x.to(torch.float32))

"""TernGrad: the scale, minus the scale or zero, at random.

    s = max|v| of the bucket, after v was clipped to ±clip * sigma;    Q(v)_i = ±s with probability |v_i| / s, else 0

sigma is the root of the bucket's mean square (the paper's standard deviation, of a mean that is nearly zero). Clipping
makes s smaller and with it the noise, at the price of a bias; ``clip=0`` turns it off. The paper takes a scale for each
layer; the buckets here are slices of the flat vector, whatever the layers.

Wen et al. 2017, "TernGrad: ternary gradients to reduce communication in distributed deep learning".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from taut.codecs.algorithms.qsgd import error_of_rounding
from taut.codecs.compressor import FEEDBACK_KERNELS, Array, CompressedPiece, Compressor, CompressorState, Vector
from taut.codecs.info import CodecCost, CodecInfo
from taut.codecs.kernels import cpu
from taut.codecs.math.counter_rng import uniform
from taut.codecs.math.quantize import RANDOM_KERNELS, block_maxima, check_bucket, in_blocks, round_randomly
from taut.codecs.wire.layouts.int_levels import preamble
from taut.codecs.wire.payload import Kind
from taut.errors import Misuse

WIDTH = 2


@dataclass(frozen=True)
class TernGrad(Compressor):
    """``clip``: in units of sigma; 0: no clipping. ``bucket``: elements that share a scale, a power of two.

    >>> facts = TernGrad().facts
    >>> round(facts.bits, 3), facts.error, facts.unbiased, TernGrad(0).facts.unbiased
    (2.008, 1.78125, False, True)
    """

    name: ClassVar[str] = "terngrad"
    kernels = (*FEEDBACK_KERNELS, *RANDOM_KERNELS, "levels.pack_2", "levels.block_square_sums")
    kind: ClassVar[Kind] = Kind.LEVELS
    feeds_back: ClassVar[bool] = False
    piece: ClassVar[int] = 1 << 16

    clip: float = 2.5
    bucket: int = 4096

    def __post_init__(self) -> None:
        if not (math.isfinite(self.clip) and self.clip >= 0.0):
            raise Misuse(f"terngrad: clip={self.clip:g}", "a number of sigmas, or 0 for no clipping", "try clip=2.5")
        check_bucket(self)

    @property
    def facts(self) -> CodecInfo:
        clipped = "1 + clip^2 / 8" if self.clip <= 4.0 else "clip - 1"
        factor = clipped if self.clip else "(sqrt(1 + bucket) - 1) / 2"
        return CodecInfo(
            title=f"plus, minus or zero at random, a scale per bucket of {self.bucket}",
            bits=WIDTH + 32.0 / self.bucket,
            error=error_of_clipping(self.clip) if self.clip else error_of_rounding(1, self.bucket),
            bound=f"E|Q(v) - v|^2 <= ({factor}) |v|^2",
            paper="Wen et al. 2017",
            cost=CodecCost(2.79e-9, 3.53e-9, 2.008, 50.9e-6),
            unbiased=not self.clip,
        )

    def compress(self, v: Vector, lo: int, memory: CompressorState) -> CompressedPiece | None:
        scales = block_maxima(v, self.bucket)
        if self.clip:
            scales = _clipped(v, self.bucket, scales, self.clip)
        u = uniform(memory.seed, memory.turns, lo, v)
        return round_randomly(v, u, self.bucket, scales, 1, WIDTH)

    def body(self, pieces: Sequence[CompressedPiece], length: int) -> tuple[Array, ...]:
        return preamble(WIDTH, self.bucket), *super().body(pieces, length)


def error_of_clipping(clip: float) -> float:
    """Return a c for which E|Q(v) - v|^2 <= c |v|^2 for every v, whatever the bucket.

    Of one bucket let sigma = 1, so that |v|^2 = d, t = |v_i|, and s <= clip the scale. An element that was not clipped
    has an error of s t - t^2 <= clip t - t^2 in the mean; one that was has s = clip and an error of (t - clip)^2 <= t^2.
    Both are at most t^2 + clip^2 / 8 (the first since 2 (t - clip/4)^2 >= 0), and at most (clip/2 - 1) t^2 + clip/2 if
    clip >= 4 (the first since (t - 1)^2 >= 0). Summed over the bucket: (1 + clip^2 / 8) d, or (clip - 1) d.

    >>> error_of_clipping(4.0), error_of_clipping(10.0)
    (3.0, 9.0)
    """
    return 1.0 + clip**2 / 8.0 if clip <= 4.0 else clip - 1.0


def _clipped(v: Vector, bucket: int, largest: Vector, clip: float) -> Vector:
    """Return min(max|v|, clip * sigma) of each bucket. Squares are taken of v / max|v|, which neither overflow nor
    vanish. Roots are of float64: those of torch's float32 are not always the nearest, and a float64 root rounded to
    float32 is (the root of a float32 is never so near to the middle of two that the last bit of a float64 matters)."""
    last = len(v) - (len(largest) - 1) * bucket
    if isinstance(v, np.ndarray):
        counts = np.full(len(largest), bucket, np.float32)
        counts[-1] = last
        means = cpu.levels.block_square_sums(v, bucket, largest) / counts
        shares = np.sqrt(means.astype(np.float64)).astype(np.float32)
        limits = shares * np.float32(clip)
        return largest * np.minimum(limits, np.float32(1.0))
    import torch

    elements = torch.full_like(largest, float(bucket))
    elements[-1] = last
    shares = (_square_sums_torch(v, bucket, largest) / elements).double().sqrt().float()
    limits = shares * torch.full_like(shares, clip)
    return largest * limits.clamp_(max=1.0)


def _square_sums_torch(v: Any, bucket: int, largest: Any) -> Any:
    """Return what ``kernels.cpu.levels.block_square_sums`` returns, summed in the same order."""
    import torch

    squares = in_blocks(v, bucket) / torch.where(largest > 0, largest, torch.ones_like(largest))[:, None]
    squares *= squares
    while squares.shape[1] > 1:
        half = squares.shape[1] // 2
        squares = squares[:, :half] + squares[:, half:]
    return squares[:, 0]

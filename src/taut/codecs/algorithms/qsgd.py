"""QSGD: a few levels between zero and the largest of a bucket, rounded up or down at random, so that the mean is right.

    scale = max|v| / s of the bucket;    Q(v)_i = scale * (floor(x) or floor(x) + 1),  x = v_i / scale,  E Q(v)_i = v_i

This is the form that the authors use in practice: buckets, and the largest element in place of the 2-norm.

Alistarh et al. 2017, "QSGD: communication-efficient SGD via gradient quantization and encoding".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from taut.codecs.compressor import FEEDBACK_KERNELS, Array, CompressedPiece, Compressor, CompressorState, Vector
from taut.codecs.info import CodecCost, CodecInfo
from taut.codecs.math.counter_rng import uniform
from taut.codecs.math.quantize import MOST, RANDOM_KERNELS, check_bucket, round_randomly, scales_of
from taut.codecs.wire.layouts.int_levels import preamble, width_of
from taut.codecs.wire.payload import Kind
from taut.errors import Misuse
from taut.specs import check_whole


@dataclass(frozen=True)
class QSGD(Compressor):
    """``levels``: s, from 1 (2 bits a number) through 7 (4 bits) to 127 (8 bits); others take the next width. ``bucket``:
    elements that share a scale, a power of two.

    It is unbiased (but for 2^-24 of the scale, the resolution of the random numbers), so it is used without feedback;
    feedback needs an error below 1, as of ``levels=15``.

    >>> round(QSGD().facts.bits, 4), round(QSGD().facts.error, 2), round(QSGD(15).facts.error, 2)
    (4.0625, 1.19, 0.4)
    """

    name: ClassVar[str] = "qsgd"
    kernels = (*FEEDBACK_KERNELS, *RANDOM_KERNELS, "levels.pack_4")
    kind: ClassVar[Kind] = Kind.LEVELS
    feeds_back: ClassVar[bool] = False
    piece: ClassVar[int] = 1 << 16

    levels: int = 7
    bucket: int = 512

    def __post_init__(self) -> None:
        check_whole(self, "levels", 1, "try levels=1")
        if self.levels > MOST:
            raise Misuse(f"qsgd: levels={self.levels}", f"at most {MOST}, which fill 8 bits", f"try levels={MOST}")
        check_bucket(self)

    @property
    def facts(self) -> CodecInfo:
        return CodecInfo(
            title=f"{self.levels} levels of either sign, rounded at random, a scale per bucket of {self.bucket}",
            bits=width_of(self.levels) + 32.0 / self.bucket,
            error=error_of_rounding(self.levels, self.bucket),
            bound="E|Q(v) - v|^2 <= (sqrt(1 + bucket / levels^2) - 1) / 2 |v|^2, + 2^-140 an element",
            paper="Alistarh et al. 2017",
            cost=CodecCost(2.59e-9, 1.9e-9, 4.062, 44.8e-6),
            unbiased=True,
        )

    def compress(self, v: Vector, lo: int, memory: CompressorState) -> CompressedPiece | None:
        scales = scales_of(v, self.bucket, self.levels)
        u = uniform(memory.seed, memory.turns, lo, v)
        return round_randomly(v, u, self.bucket, scales, self.levels, width_of(self.levels))

    def body(self, pieces: Sequence[CompressedPiece], length: int) -> tuple[Array, ...]:
        return preamble(width_of(self.levels), self.bucket), *super().body(pieces, length)


def error_of_rounding(levels: int, bucket: int) -> float:
    """Return the least c for which E|Q(v) - v|^2 <= c |v|^2 for every v, except that d is written where d - 1 would do.

    Of one bucket of d elements let a = max|v| / s be the scale and x_i = |v_i| / a. Random rounding has a variance of
    a^2 f (1 - f), f = x - floor(x), so 0 for the largest, whose x is s. And for any c > 0 and x >= 0

        f (1 - f) - c x^2  <=  f (1 - f) - c f^2  <=  1 / (4 (1 + c))            (the top of the parabola)

    Summed over the d - 1 others: E|Q(v) - v|^2 - c |v|^2  <=  a^2 ((d - 1) / (4 (1 + c)) - c s^2), which is not above 0
    if 4 c (1 + c) >= (d - 1) / s^2, that is (1 + 2c)^2 >= 1 + (d - 1) / s^2. Equality at x_i = 1 / (2 (1 + c)). The d in
    place of d - 1 leaves room for the roundings of float32.

    >>> error_of_rounding(1, 8), round(error_of_rounding(127, 512), 4)
    (1.0, 0.0079)
    """
    return (math.sqrt(1.0 + bucket / levels**2) - 1.0) / 2.0

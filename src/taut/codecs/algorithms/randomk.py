"""Random-k: elements at random indices, as they are.

    Q(v)_i = v_i at k = density * n indices, each as likely, else 0        E|Q(v) - v|^2 = (1 - k/n) |v|^2

The indices are start + j * stride (mod n), which follow from two numbers on the wire: 4 bytes an element, where top-k
needs 8. They are a hash of (seed, turn, start of the range). Every element is as likely as any other; elements are not
chosen independently of each other, which neither equation needs.

With error feedback values are sent as they are. Without it they should be ``scale``d by n/k, which makes the mean right:

    E Q(v) = v;    E|Q(v) - v|^2 = (n/k - 1) |v|^2                         randomk:scale=yes,feedback=no

Do not combine both: a residual would be sent n/k times over, and grow. A compressor cannot check that.

Wangni et al. 2018, "Gradient sparsification for communication-efficient distributed optimization"; Stich et al. 2018,
"Sparsified SGD with memory".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from taut.codecs.compressor import CompressedPiece, Compressor, CompressorState, Vector
from taut.codecs.info import CodecCost, CodecInfo
from taut.codecs.math.arrays import in_host_memory, on_device_of
from taut.codecs.params import check_density
from taut.codecs.wire.layouts.sparse import strided
from taut.codecs.wire.payload import Kind
from taut.core.splitmix import splitmix64

_WORD = 1 << 64


@dataclass(frozen=True)
class RandomK(Compressor):
    """``density``: the share of the elements that is sent, at least one of them. ``scale``: multiply values by n/k, for
    use without feedback.

    >>> RandomK(0.01).facts.bits, RandomK(0.01, scale=True).facts.error
    (0.32, 99.0)
    """

    name: ClassVar[str] = "randomk"
    kernels = ("feedback._grow",)
    kind: ClassVar[Kind] = Kind.SEEDED

    density: float = 0.01
    scale: bool = False

    def __post_init__(self) -> None:
        check_density(self)

    @property
    def facts(self) -> CodecInfo:
        if self.scale:
            error, bound = 1.0 / self.density - 1.0, "E|Q(v) - v|^2 <= (1 / density - 1) |v|^2"
        else:
            error, bound = 1.0 - self.density, "E|Q(v) - v|^2 <= (1 - density) |v|^2"
        return CodecInfo(
            title="elements at random indices" + (", times n/k" if self.scale else ", as they are"),
            bits=32.0 * self.density,
            error=error,
            bound=bound,
            paper="Wangni et al. 2018",
            cost=CodecCost(1.3e-9, 9.98e-9, 0.32, 49.6e-6),
            unbiased=self.scale,
        )

    def compress(self, v: Vector, lo: int, memory: CompressorState) -> CompressedPiece | None:
        k = max(1, math.ceil(self.density * len(v)))
        start, stride = progression(memory.seed, memory.turns, lo, len(v))
        indices = on_device_of(strided(start, stride, k, len(v)), v)
        values = v[indices]
        if not values.any():
            return None
        if self.scale:
            values *= float(np.float32(len(v) / k))
        return CompressedPiece((np.array([start, stride], np.uint64), in_host_memory(values)), values, indices)


def progression(seed: int, turn: int, lo: int, length: int) -> tuple[int, int]:
    """Return the first index, each as likely, and the stride, which has no common factor with ``length``.

    >>> progression(0, 0, 0, 1), math.gcd(progression(7, 3, 64, 1000)[1], 1000)
    ((0, 1), 1)
    """
    mixed = 0
    for number in (seed, turn, lo):
        mixed = splitmix64(mixed ^ (number % _WORD))
    start = mixed * length // _WORD
    stride = 1 + splitmix64(mixed) * (length - 1) // _WORD
    while math.gcd(stride, length) != 1:
        stride = stride % length + 1
    return start, stride

"""Updates that resemble those of training, to measure codecs without a model. Made up, and seeded.

    u_t = scale * (0.5 a b' + rows * columns * noise_t)        for every matrix; vectors alike, without the product

Scales of tensors are lognormal (sigma 1), so are those of rows and columns (sigma 0.5); noise is Student's t with three
degrees of freedom, so heavy-tailed, and another at every step; a and b stay: the direction in which training goes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

SIDE = 512  # of the matrices
SIGNAL = 0.5
SIZE = 1e-3  # of a typical element
POOL = 1 << 20  # numbers that are drawn; every step begins at another of them

Floats = npt.NDArray[np.float32]


def shapes_for(size: int) -> list[tuple[int, ...]]:
    """Return the shapes of a made-up network of ``size`` parameters: square matrices, each with a bias, and the rest.

    >>> shapes_for(300_000)
    [(512, 512), (512,), (193, 193), (95,)]
    """
    shapes: list[tuple[int, ...]] = []
    while size >= 16:
        side = min(SIDE, math.isqrt(size))
        shapes.append((side, side))
        size -= side * side
        bias = min(side, size)
        if bias:
            shapes.append((bias,))
            size -= bias
    return [*shapes, (size,)] if size else shapes


class Synthetic:
    """Made-up updates. ``next`` returns the next one, in a buffer that the one after it overwrites.

    >>> updates = Synthetic(1000, seed=3)
    >>> first = updates.next().copy()
    >>> len(first), bool((updates.next() != first).any()), bool((Synthetic(1000, seed=3).next() == first).all())
    (1000, True, True)
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self.shapes = shapes_for(size)
        self._rng = np.random.default_rng(seed)
        drawn = self._rng.standard_t(3, min(POOL, max(64, size))).astype(np.float32)
        self._pool = np.concatenate([drawn, drawn])  # so that a part from anywhere is in one piece
        self._buffer = np.empty(size, np.float32)
        self._envelope = np.empty(size, np.float32)
        self._drift = np.empty(size, np.float32)
        start = 0
        for shape in self.shapes:
            stop = start + math.prod(shape)
            self._envelope[start:stop], self._drift[start:stop] = self._tensor(shape)
            start = stop

    def _tensor(self, shape: Sequence[int]) -> tuple[Floats, Floats]:
        """Return how large the noise of each element is, and the part that stays."""
        rng, scale = self._rng, SIZE * math.exp(float(self._rng.standard_normal()))
        envelope, drift = np.float32(scale), np.float32(SIGNAL * scale)
        spreads = [np.exp(0.5 * rng.standard_normal(side)).astype(np.float32) for side in shape]
        signals = [rng.standard_normal(side).astype(np.float32) for side in shape]
        if len(shape) == 1:
            return envelope * spreads[0], drift * signals[0]
        return (envelope * np.outer(*spreads)).ravel(), (drift * np.outer(*signals)).ravel()

    def next(self) -> Floats:
        period = len(self._pool) // 2
        for start in range(0, len(self._buffer), period):
            part = slice(start, min(start + period, len(self._buffer)))
            offset = int(self._rng.integers(period))
            np.multiply(self._envelope[part], self._pool[offset : offset + part.stop - start], out=self._buffer[part])
        self._buffer += self._drift
        return self._buffer

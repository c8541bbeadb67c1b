"""The inner loop of ``sketch`` for NumPy vectors; apart from the other kernels, since only heartbeats need
it."""

from __future__ import annotations

import numpy as np
from numba import types

from taut.codecs.kernels.cpu.compilation import kernel

_vector = types.Array(types.float32, 1, "C", readonly=True)
_sums = types.Array(types.float64, 1, "C")


@kernel(types.void(_vector, types.uint64, _sums))
def add_to_sketch(w, seed, sums):  # type: ignore[no-untyped-def]
    """``sums``: the buckets and 64 more, so that a block never wraps around inside the loop."""
    mask = np.uint64(sums.size - 64 - 1)
    one = np.uint64(1)
    blocks = (w.size + 63) // 64
    for block in range(blocks):
        z = np.uint64(block + 1) * np.uint64(0x9E3779B97F4A7C15) + seed
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
        start = np.int64(((z * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(40)) & mask)
        part = w[block * 64 : block * 64 + 64]
        target = sums[start : start + 64]
        for i in range(part.size):
            minus = (z >> np.uint64(i)) & one
            target[i] += np.float64(-part[i] if minus else part[i])

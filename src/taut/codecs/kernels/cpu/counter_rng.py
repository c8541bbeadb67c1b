"""Random numbers from a counter, in numba: the same bits as the torch operations of ``counter_rng.py``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from taut.codecs.kernels.cpu.compilation import kernel
from taut.codecs.math.counter_rng import MULTIPLIERS

_first, _second, _third = (np.uint32(number) for number in MULTIPLIERS)
_unit = np.float32(2.0**-24)
_8, _11, _14, _15, _17 = (np.uint32(number) for number in (8, 11, 14, 15, 17))


@kernel(types.void(types.Array(types.float32, 1, "C"), types.uint32, types.uint32, types.uint32))
def _fill(values, counter, key, other):  # type: ignore[no-untyped-def]
    for i in range(values.size):
        x = np.uint32(np.uint32(counter + np.uint32(i)) ^ key)
        x = np.uint32(x ^ (x >> _17))
        x = np.uint32(x * _first)
        x = np.uint32(x ^ (x >> _11))
        x = np.uint32(x + other)
        x = np.uint32(x * _second)
        x = np.uint32(x ^ (x >> _15))
        x = np.uint32(x * _third)
        x = np.uint32(x ^ (x >> _14))
        values[i] = np.float32(np.int32(x >> _8)) * _unit


def fill(values: npt.NDArray[np.float32], counter: int, key: int, other: int) -> None:
    """``values`` (contiguous) become the numbers of counters ``counter``, ``counter + 1``, ... under the two keys."""
    _fill(values, np.uint32(counter), np.uint32(key), np.uint32(other))

"""The arithmetic of error feedback on NumPy vectors, in numba: one pass each over a piece that is in the cache.

All work in place on slices of equal length; float32, one rounding per operation (no fastmath), as in
``kernels_torch_feedback``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from taut.codecs.kernels_cpu import _kernel

F32 = npt.NDArray[np.float32]

_vector = types.Array(types.float32, 1, "C")
_values = types.Array(types.float32, 1, "C", readonly=True)
_bits = types.Array(types.uint32, 1, "C")
_f32 = types.float32
_EXPONENT = np.uint32(0x7F800000)


@_kernel(types.void(_vector, _vector, _vector, _f32))
def _grow(r, w, b, share):  # type: ignore[no-untyped-def]
    for i in range(r.size):
        r[i] += (w[i] - b[i]) * share


@_kernel(types.void(_vector, _vector, _vector, _vector))
def _take(w, b, r, q):  # type: ignore[no-untyped-def]
    for i in range(r.size):
        r[i] -= q[i]
        b[i] += q[i]
        w[i] = b[i]


@_kernel(types.boolean(_bits))
def _infinite(bits):  # type: ignore[no-untyped-def]
    found = np.uint32(0)
    for i in range(bits.size):
        found |= np.uint32(1) if bits[i] & _EXPONENT == _EXPONENT else np.uint32(0)
    return found != np.uint32(0)


def finite(r: F32) -> bool:
    """No element is NaN or infinite: all of whose exponent's bits would be set."""
    return not _infinite(r.view(np.uint32))


def change(w: F32, b: F32, share: float) -> F32:
    """(w - b) * share."""
    found: F32 = w - b
    found *= np.float32(share)
    return found


def grow(r: F32, w: F32, b: F32, share: float) -> None:
    """r += (w - b) * share."""
    _grow(r, w, b, np.float32(share))


def take(w: F32, b: F32, r: F32, q: F32, places: npt.NDArray[Any] | None) -> None:
    """q was sent: r -= q;  b += q;  w = b. With ``places``, q belongs to those elements."""
    if places is None:
        _take(w, b, r, q)
        return
    r[places] -= q
    b[places] += q
    w[:] = b


def rest(w: F32, b: F32) -> None:
    """Nothing was sent: w = b."""
    w[:] = b

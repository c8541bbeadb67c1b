"""The arithmetic of error feedback on NumPy vectors, in numba: one pass each, over a piece that is in the cache or, on
several threads, over a whole vector.

All work in place on slices of equal length; float32, one rounding per operation (no fastmath), as in
``kernels.torch_ops``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from taut.codecs.kernels.cpu import array_types as a
from taut.codecs.kernels.cpu.compilation import kernel
from taut.codecs.parallel import run_parts

F32 = npt.NDArray[np.float32]

_EXPONENT = np.uint32(0x7F800000)


@kernel(types.boolean(a.F32, a.F32, a.F32, types.float32))
def _grow(r, w, b, share):  # type: ignore[no-untyped-def]
    """Return whether a result is NaN or infinite: all bits of its exponent are set."""
    found = np.uint32(0)
    for i in range(r.size):
        left = r[i] + (w[i] - b[i]) * share
        r[i] = left
        w[i] = b[i]
        found |= np.uint32((np.float32(left).view(np.uint32) & _EXPONENT) == _EXPONENT)
    return found != np.uint32(0)


@kernel(types.void(a.F32, a.F32, types.float32, a.F32))
def _change(w, b, share, out):  # type: ignore[no-untyped-def]
    for i in range(out.size):
        out[i] = (w[i] - b[i]) * share
        w[i] = b[i]


@kernel(types.void(a.F32, a.F32, a.F32, a.F32))
def _take(w, b, r, q):  # type: ignore[no-untyped-def]
    for i in range(r.size):
        r[i] -= q[i]
        b[i] += q[i]
        w[i] = b[i]


@kernel(types.boolean(a.U32))
def _infinite(bits):  # type: ignore[no-untyped-def]
    found = np.uint32(0)
    for i in range(bits.size):
        found |= np.uint32((bits[i] & _EXPONENT) == _EXPONENT)
    return found != np.uint32(0)


def finite(r: F32) -> bool:
    """Return whether no element is NaN or infinite."""
    bits = r.view(np.uint32)
    return not any(run_parts(lambda start, stop: _infinite(bits[start:stop]), 0, r.size))


def take_change(w: F32, b: F32, share: float) -> F32:
    """Return (w - b) * share;  then set w = b, since w is read here anyway."""
    found: F32 = np.empty(w.size, np.float32)
    run_parts(lambda *at: _change(*_slices(at, w, b), share, *_slices(at, found)), 0, w.size)
    return found


def grow(r: F32, w: F32, b: F32, share: float) -> bool:
    """Compute r += (w - b) * share;  then w = b. Return whether all of r is finite."""
    return not any(run_parts(lambda *at: _grow(*_slices(at, r, w, b), share), 0, r.size))


def take(w: F32, b: F32, r: F32, q: F32, indices: npt.NDArray[Any] | None) -> None:
    """Move q, which was sent: r -= q;  b += q;  w = b, which it was before. With ``indices``, q belongs to those
    elements."""
    if indices is None:
        run_parts(lambda *at: _take(*_slices(at, w, b, r, q)), 0, r.size)
        return
    r[indices] -= q
    b[indices] += q
    w[indices] = b[indices]


def rest(w: F32, b: F32) -> None:
    """Do nothing: w = b already, and nothing was sent."""


def _slices(at: tuple[int, int], *vectors: F32) -> list[F32]:
    return [vector[at[0] : at[1]] for vector in vectors]

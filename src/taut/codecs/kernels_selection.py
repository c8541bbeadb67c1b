"""The kernels of sparse codecs, in numba: selecting by magnitude, and the momentum of DGC.

Magnitudes are compared as whole numbers: a float's bits without its sign rise with its magnitude, and whole numbers know
no rounding and no negative zero.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import types

from taut.codecs.kernels_cpu import _kernel
from taut.codecs.selection import LOW

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
F32 = npt.NDArray[np.float32]

_low = np.int32(LOW)
_mask, _rest = np.int32(0x7FFFFFFF), np.int32((1 << LOW) - 1)
_0, _16, _64 = np.uint64(0), np.uint64(16), np.uint64(64)

_bits = types.Array(types.int32, 1, "C", readonly=True)
_vector = types.Array(types.float32, 1, "C")
_values = types.Array(types.float32, 1, "C", readonly=True)
_places = types.Array(types.int64, 1, "C")
_found = types.UniTuple(types.int64, 2)  # type: ignore[no-untyped-call]


@numba.njit(nogil=True, error_model="numpy")  # part of the kernel below: compiled and kept with it
def _edge_bucket(counts, k):  # type: ignore[no-untyped-def]
    """The bucket that holds the k-th from above, and how many of it are wanted. Bucket 0 where there are fewer."""
    above = np.int64(0)
    for bucket in range(counts.size - 1, 0, -1):
        if above + counts[bucket] >= k:
            return np.int64(bucket), k - above
        above += counts[bucket]
    return np.int64(0), k - above


@_kernel(_found(_bits, types.int64))
def _edge(bits, k):  # type: ignore[no-untyped-def]
    """The k-th largest magnitude, and how many of just that magnitude are wanted. Two passes, two histograms."""
    upper = np.zeros(1 << 16, np.uint32)
    for i in range(np.uint64(bits.size)):
        upper[np.uint32(bits[i] & _mask) >> np.uint32(LOW)] += np.uint32(1)
    bucket, wanted = _edge_bucket(upper, k)
    lower = np.zeros(1 << LOW, np.uint32)
    edge = np.int32(bucket)
    for i in range(np.uint64(bits.size)):
        magnitude = bits[i] & _mask
        if magnitude >> _low == edge:
            lower[np.uint32(magnitude & _rest)] += np.uint32(1)
    inner, wanted = _edge_bucket(lower, wanted)
    return (bucket << LOW) | inner, wanted


@_kernel(types.int64(_bits, types.int32, types.int64, _places))
def _take(bits, edge, wanted, out):  # type: ignore[no-untyped-def]
    """Places above the edge, and the first ``wanted`` at it; rising. ``out`` has room for one more than there are."""
    count = _0
    for i in range(np.uint64(bits.size)):
        magnitude = bits[i] & _mask
        at = np.int64((magnitude == edge) & (wanted > 0))
        wanted -= at
        out[count] = i
        count += np.uint64(magnitude > edge) + np.uint64(at)
    return count


@numba.njit(nogil=True, error_model="numpy")
def _any_over(bits, start, stop, block, least):  # type: ignore[no-untyped-def]
    """Whether anything is over in a whole block, without branches; True where it is cut short."""
    if stop - start != block:
        return True
    some = np.uint32(0)
    for i in range(block):
        some |= np.uint32((bits[start + i] & _mask) >= least)
    return some != np.uint32(0)


@_kernel(types.int64(_bits, types.int32, _places))
def _over(bits, least, out):  # type: ignore[no-untyped-def]
    """Places of magnitudes of at least ``least``, rising; -1 where ``out`` has no room for them and a block more. Only
    where a block of 64, and of its four parts one, has any are elements looked at one by one."""
    count = _0
    room = np.uint64(out.size) - _64
    size = np.uint64(bits.size)
    start = _0
    while start < size:
        stop = min(start + _64, size)
        if _any_over(bits, start, stop, _64, least):
            if count > room:
                return np.int64(-1)
            while start < stop:
                end = min(start + _16, stop)
                if _any_over(bits, start, end, _16, least):
                    for i in range(start, end):
                        out[count] = i
                        count += np.uint64((bits[i] & _mask) >= least)
                start = end
        start = stop
    return np.int64(count)


def over(bits: I32, least: int, room: int) -> I64 | None:
    """Rising places of magnitudes of at least ``least``; None where there are more than ``room``."""
    out: I64 = np.empty(room + 64, np.int64)
    count = int(_over(bits, np.int32(least), out))
    return out[:count] if count >= 0 else None


def largest(bits: I32, k: int) -> I64:
    """Rising places of the ``k`` largest magnitudes above zero, of equal ones the first."""
    edge, wanted = _edge(bits, k)
    if edge == 0:
        wanted = 0  # zeros are not sent
    out: npt.NDArray[Any] = np.empty(min(k, bits.size) + 1, np.int64)
    return out[: int(_take(bits, np.int32(edge), wanted, out))]


@_kernel(types.void(_vector, _vector, _values, types.float32, types.float32))
def _gather_momentum(r, u, change, momentum, share):  # type: ignore[no-untyped-def]
    for i in range(r.size):
        u[i] = u[i] * momentum + change[i] * share
        r[i] += u[i]


def gather_momentum(r: F32, u: F32, change: F32, momentum: float, share: float) -> None:
    """u = momentum * u + share * change;  r += u. In place, one pass."""
    _gather_momentum(r, u, change, np.float32(momentum), np.float32(share))

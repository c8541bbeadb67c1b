"""The kernels of sparse codecs, in numba: selecting by magnitude, and the momentum of DGC.

Magnitudes are compared as whole numbers: a float's bits without its sign rise with its magnitude, and whole numbers know
no rounding and no negative zero.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from numba import types

from taut.codecs import parallel
from taut.codecs.kernels.cpu import array_types as a
from taut.codecs.kernels.cpu.compilation import kernel, part
from taut.codecs.math.topk_select import LOW

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]
F32 = npt.NDArray[np.float32]

_low = np.int32(LOW)
_mask, _rest = np.int32(0x7FFFFFFF), np.int32((1 << LOW) - 1)
_0, _16, _64 = np.uint64(0), np.uint64(16), np.uint64(64)


@kernel(types.void(a.I32_IN, a.U32))
def _count_upper(bits, upper):  # type: ignore[no-untyped-def]
    for i in range(np.uint64(bits.size)):
        upper[np.uint32(bits[i] & _mask) >> np.uint32(LOW)] += np.uint32(1)


@kernel(types.void(a.I32_IN, types.int32, a.U32))
def _count_lower(bits, bucket, lower):  # type: ignore[no-untyped-def]
    """Count the lower bits of the magnitudes in one bucket of the upper bits."""
    for i in range(np.uint64(bits.size)):
        magnitude = bits[i] & _mask
        if magnitude >> _low == bucket:
            lower[np.uint32(magnitude & _rest)] += np.uint32(1)


@kernel(a.tuple_of(types.int64, types.int64)(a.U32, types.int64))
def _edge_bucket(counts, k):  # type: ignore[no-untyped-def]
    """Return the bucket that holds the k-th from above, and how many of it are wanted; bucket 0 if there are fewer."""
    above = np.int64(0)
    for bucket in range(counts.size - 1, 0, -1):
        if above + counts[bucket] >= k:
            return np.int64(bucket), k - above
        above += counts[bucket]
    return np.int64(0), k - above


@kernel(types.int64(a.I32_IN, types.int32, types.int64, a.I64))
def _take(bits, edge, wanted, out):  # type: ignore[no-untyped-def]
    """Write the rising indices above the edge, and the first ``wanted`` at it. ``out`` must have room for one more."""
    count = _0
    for i in range(np.uint64(bits.size)):
        magnitude = bits[i] & _mask
        at = np.int64((magnitude == edge) & (wanted > 0))
        wanted -= at
        out[count] = i
        count += np.uint64(magnitude > edge) + np.uint64(at)
    return count


@part
def _any_at_least(bits, start, stop, block, least):  # type: ignore[no-untyped-def]
    """Return whether any magnitude of a whole block reaches ``least``, without branches; True for a block cut short."""
    if stop - start != block:
        return True
    some = np.uint32(0)
    for i in range(block):
        some |= np.uint32((bits[start + i] & _mask) >= least)
    return some != np.uint32(0)


@kernel(types.int64(a.I32_IN, types.int32, a.I64))
def _at_least(bits, least, out):  # type: ignore[no-untyped-def]
    """Write the rising indices of magnitudes of at least ``least``; return how many, or -1 if ``out`` has no room for
    them and a block more. Elements are looked at one by one only in a quarter of a block of 64 that has any."""
    count = _0
    room = np.uint64(out.size) - _64
    size = np.uint64(bits.size)
    start = _0
    while start < size:
        stop = min(start + _64, size)
        if _any_at_least(bits, start, stop, _64, least):
            if count > room:
                return np.int64(-1)
            while start < stop:
                end = min(start + _16, stop)
                if _any_at_least(bits, start, end, _16, least):
                    for i in range(start, end):
                        out[count] = i
                        count += np.uint64((bits[i] & _mask) >= least)
                start = end
        start = stop
    return np.int64(count)


def at_least(bits: I32, least: int, room: int) -> I64 | None:
    """Return the rising indices of magnitudes of at least ``least``; None if there are more than ``room``."""

    def some(start: int, stop: int) -> I64 | None:
        out: I64 = np.empty(min(room, stop - start) + 64, np.int64)
        count = int(_at_least(bits[start:stop], np.int32(least), out))
        if count < 0:
            return None
        out[:count] += start
        return out[:count]

    found = parallel.run_parts(some, 0, bits.size)
    indices = [part for part in found if part is not None]
    if len(indices) < len(found) or sum(part.size for part in indices) > room:
        return None
    return indices[0] if len(indices) == 1 else np.concatenate(indices)


def largest(bits: I32, k: int) -> I64:
    """Return the rising indices of the ``k`` largest magnitudes above zero, of equal ones the first."""
    parts = parallel.split(0, bits.size)
    upper = parallel.run_tasks(lambda start, stop: _histogram(_count_upper, 1 << 16, bits[start:stop]), parts)
    bucket, wanted = _edge_bucket(_sum(upper), k)
    inside = np.int32(bucket)
    lower = parallel.run_tasks(lambda start, stop: _histogram(_count_lower, 1 << LOW, bits[start:stop], inside), parts)
    inner, wanted = _edge_bucket(_sum(lower), wanted)
    edge = bucket << LOW | inner
    if edge == 0:
        wanted = 0  # zeros are not sent
    tasks = []
    for (start, stop), low in zip(parts, lower, strict=True):
        equal = min(wanted, int(low[inner]))  # the first parts have the first of equal ones
        wanted -= equal
        tasks.append((start, stop, np.int32(edge), equal, min(k, stop - start)))
    found = parallel.run_tasks(lambda *task: _taken(bits, *task), tasks)
    return found[0] if len(found) == 1 else np.concatenate(found)


def _taken(bits: I32, start: int, stop: int, edge: np.int32, wanted: int, room: int) -> I64:
    """Return the indices of one part above the edge, and the first ``wanted`` at it; ``room`` at most."""
    out: I64 = np.empty(room + 1, np.int64)
    taken = out[: int(_take(bits[start:stop], edge, wanted, out))]
    taken += start
    return taken


def _histogram(kernel: Callable[..., None], size: int, bits: I32, *bucket: np.int32) -> U32:
    counts: U32 = np.zeros(size, np.uint32)
    kernel(bits, *bucket, counts)
    return counts


def _sum(counts: list[U32]) -> U32:
    return counts[0] if len(counts) == 1 else np.add.reduce(counts, dtype=np.uint32)


@kernel(types.void(a.F32, a.F32, a.F32_IN, types.float32, types.float32))
def _gather_momentum(r, u, change, momentum, share):  # type: ignore[no-untyped-def]
    for i in range(r.size):
        u[i] = u[i] * momentum + change[i] * share
        r[i] += u[i]


def gather_momentum(r: F32, u: F32, change: F32, momentum: float, share: float) -> None:
    """Compute u = momentum * u + share * change;  r += u, in place, in one pass."""

    def some(start: int, stop: int) -> None:
        _gather_momentum(r[start:stop], u[start:stop], change[start:stop], momentum, share)

    parallel.run_parts(some, 0, r.size)

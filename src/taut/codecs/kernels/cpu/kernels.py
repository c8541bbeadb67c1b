"""Kernels for NumPy vectors, in numba: native, without the GIL.

The two scans are written in ``kernels.cpu.scans``, and run on several threads as ``parallel`` says. All arithmetic is
float32, one rounding per operation and in a fixed order (no fastmath), so that ``kernels.torch_ops`` gives the same bits.

Every function works in place on what it is given. ``compilation`` says when kernels are compiled; importing numba takes
a while, which is why nothing imports this module before a state is made.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from taut.codecs.kernels.cpu import array_types as a
from taut.codecs.kernels.cpu.compilation import kernel
from taut.codecs.kernels.cpu.feedback import finite, grow, rest, take, take_change  # noqa: F401  # state.kernels has them
from taut.codecs.kernels.cpu.scans import scan_tether, scan_threshold
from taut.codecs.math.counter_rng import MULTIPLIERS
from taut.codecs.math.density_control import SAMPLE
from taut.codecs.parallel import HEAVY, run_chunks, run_parts
from taut.codecs.wire.payload import CHUNK, bit_values
from taut.codecs.wire.sign_list import Signs, collect, scan_parts
from taut.core import splitmix

F32 = npt.NDArray[np.float32]
U32 = npt.NDArray[np.uint32]
U8 = npt.NDArray[np.uint8]

MERGES = False  # payloads are added one after the other
FUSES = True  # a compressor may have a pass of its own over w, b and r
_1, _2 = np.uint64(1), np.uint64(2)
_STAGGER_NBYTES = 448  # vectors that start at the same offset of a page slow each other's stores and loads

_index, _f32 = types.uint64, types.float32  # unsigned: numba then leaves out the wrap-around of negative indices
_rows = types.Array(types.float32, 2, "C", readonly=True)
_first, _second, _third = (np.uint32(number) for number in MULTIPLIERS)
_u8, _u11, _u14, _u15, _u17 = (np.uint32(number) for number in (8, 11, 14, 15, 17))
_unit = np.float32(2.0**-24)
_stride, _mix_first, _mix_second = (np.uint64(number) for number in (splitmix.STRIDE, *splitmix.MULTIPLIERS))
_found = a.tuple_of(_index, _index)

_scan_tether = kernel(_found(a.F32, a.F32, _index, _index, _index, _f32, _f32, _f32, a.U32))(scan_tether)
_scan_threshold = kernel(_found(a.F32, a.F32, a.F32, _index, _index, _index, _f32, _f32, a.U32))(scan_threshold)


@kernel(types.void(a.F32, a.F32, _f32, a.F32))
def _mean(w, b, share, change):  # type: ignore[no-untyped-def]
    for i in range(change.size):
        moved = (w[i] - b[i]) * share
        change[i] = moved
        b[i] += moved
        w[i] = b[i]


@kernel(types.void(a.F32, a.F32, _index, a.U32_IN, _f32))
def _add_words(w, b, base, words, quantum):  # type: ignore[no-untyped-def]
    """Add ±quantum to b and w at every word. The indices were validated."""
    for j in range(words.size):
        i = base + np.uint64(words[j] >> np.uint32(1))
        change = -quantum if words[j] & np.uint32(1) else quantum
        b[i] += change
        w[i] += change


@kernel(types.void(a.F32, a.F32, a.F32_IN))
def _add_values(w, b, values):  # type: ignore[no-untyped-def]
    for i in range(values.size):
        b[i] += values[i]
        w[i] += values[i]


@kernel(types.void(a.U32_IN, _index, a.U8))
def _write_bits(words, first, bits):  # type: ignore[no-untyped-def]
    """Write words of elements from ``first`` on into a bitmap that starts there."""
    for j in range(words.size):
        i = np.uint64(words[j] >> np.uint32(1)) - first
        code = np.uint8(1) + np.uint8(words[j] & np.uint32(1))
        bits[i >> _2] |= np.uint8(code << np.uint8((i & np.uint64(3)) << _1))


@kernel(types.void(a.F32, types.uint32, types.uint32, types.uint32))
def fill_uniform(values, counter, key, other):  # type: ignore[no-untyped-def]
    """Fill ``values`` with the random numbers of counters ``counter``, ``counter + 1``, ... under two keys: the bits of
    ``math/counter_rng.py``."""
    for i in range(values.size):
        x = np.uint32(np.uint32(counter + np.uint32(i)) ^ key)
        x = np.uint32(x ^ (x >> _u17))
        x = np.uint32(x * _first)
        x = np.uint32(x ^ (x >> _u11))
        x = np.uint32(x + other)
        x = np.uint32(x * _second)
        x = np.uint32(x ^ (x >> _u15))
        x = np.uint32(x * _third)
        x = np.uint32(x ^ (x >> _u14))
        values[i] = np.float32(np.int32(x >> _u8)) * _unit


@kernel(types.void(types.Array(types.float32, 2, "A", readonly=True), _rows, types.Array(types.float32, 2, "C")))
def _outer(p, q, out):  # type: ignore[no-untyped-def]
    for i in range(out.shape[0]):
        row = out[i]
        factor, other = p[0, i], q[0]
        for j in range(row.size):
            row[j] = factor * other[j]
        for k in range(1, p.shape[0]):
            factor, other = p[k, i], q[k]
            for j in range(row.size):
                row[j] += factor * other[j]


@kernel(types.void(a.F32_IN, types.uint64, a.F64))
def add_to_sketch(w, seed, sums):  # type: ignore[no-untyped-def]
    """Add ``w`` to ``sums``: the buckets of a sketch and 64 more, so that a block never wraps around inside the loop."""
    mask = np.uint64(sums.size - 64 - 1)
    for block in range((w.size + 63) // 64):
        z = np.uint64(block + 1) * _stride + seed
        z = (z ^ (z >> np.uint64(30))) * _mix_first
        z = (z ^ (z >> np.uint64(27))) * _mix_second
        z = z ^ (z >> np.uint64(31))
        start = np.int64(((z * _stride) >> np.uint64(40)) & mask)
        part = w[block * 64 : block * 64 + 64]
        target = sums[start : start + 64]
        for i in range(part.size):
            minus = (z >> np.uint64(i)) & _1
            target[i] += np.float64(-part[i] if minus else part[i])


def outer(p: F32, q: F32, out: F32) -> None:
    """Compute out = p' q for p (r, m) and q (r, n), row by row in the processor's cache: the bits of
    ``layouts/low_rank.py``."""
    run_parts(lambda start, stop: _outer(p[:, start:stop], q, out[start:stop]), 0, len(out), 1, q.shape[1])


def like(w: F32, number: int, filled: bool) -> F32:
    """Return a vector beside ``w``, a copy of it or zeros, set off against it within a page; ``number``: 1, 2, ..."""
    room = np.empty(w.nbytes + 4096 + 64, np.uint8)  # not zeros: NumPy asks for huge pages here only
    shift = (w.ctypes.data + number * _STAGGER_NBYTES - room.ctypes.data) % 4096
    vector: F32 = room[shift : shift + w.nbytes].view(np.float32)
    vector[:] = w if filled else np.float32(0.0)
    return vector


def tether(w: F32, b: F32, lo: int, hi: int, limit: float, up: float, out: U32) -> Signs:
    """Scan ``lo..hi-1`` for the tether codec: b moves by ``up``, w gives back ``limit - up``."""
    f32 = np.float32
    give = f32(limit) - f32(up)

    def part(start: int, stop: int, room: U32) -> Signs:
        scan = lambda at: _scan_tether(w, b, at, stop, start, f32(limit), f32(up), give, room)  # noqa: E731
        return collect(scan, start, stop, room, _write_bits)

    return scan_parts(part, lo, hi, out, _write_bits)


def threshold(w: F32, b: F32, r: F32, lo: int, hi: int, tau: float, share: float, out: U32) -> Signs:
    """Scan ``lo..hi-1`` for the threshold codec: r += (w - b) * share, one ±tau per element."""
    f32 = np.float32

    def part(start: int, stop: int, room: U32) -> Signs:
        scan = lambda at: _scan_threshold(w, b, r, at, stop, start, f32(tau), f32(share), room)  # noqa: E731
        return collect(scan, start, stop, room, _write_bits)

    return scan_parts(part, lo, hi, out, _write_bits)


def mean(w: F32, b: F32, lo: int, hi: int, share: float) -> F32:
    """Scan for the dense codec: return the change times ``share``, which b takes and w keeps."""
    change: F32 = np.empty(hi - lo, np.float32)

    def some(start: int, stop: int) -> None:
        _mean(w[start:stop], b[start:stop], np.float32(share), change[start - lo : stop - lo])

    run_parts(some, lo, hi)
    return change


def sample(x: F32, y: F32 | None, lo: int, hi: int) -> F32:
    """Return |x - y| (or |x|) of up to 2^16 elements, evenly spaced over ``lo..hi-1``."""
    step = (hi - lo - 1) // SAMPLE + 1
    found: F32 = np.abs(x[lo:hi:step] if y is None else x[lo:hi:step] - y[lo:hi:step])
    return found


def add_words(w: F32, b: F32, base: int, words: U32, quantum: float) -> None:
    _add_words(w, b, base, words, np.float32(quantum))


def add_bits(w: F32, b: F32, base: int, length: int, bits: U8, quantum: float) -> None:
    """Add ±quantum where a bitmap says so. Four elements are looked up per byte, then whole vectors are added: three
    times as fast as a loop with or without branches."""

    def add(start: int, stop: int) -> None:
        signs = np.take(_four_signs(), bits[start // 4 : (stop + 3) // 4]).view(np.int8)[: stop - start]
        change = signs.astype(np.float32)
        change *= np.float32(quantum)
        b[base + start : base + stop] += change
        w[base + start : base + stop] += change

    run_chunks(add, 0, length, CHUNK, HEAVY)


@cache
def _four_signs() -> U32:
    return np.ascontiguousarray(bit_values()).view(np.uint32).ravel()


def add_values(w: F32, b: F32, base: int, values: F32) -> None:
    _add_values(w[base : base + values.size], b[base : base + values.size], np.ascontiguousarray(values, np.float32))


def add_at(w: F32, b: F32, base: int, given: npt.NDArray[Any], values: F32) -> None:
    indices = given.astype(np.int64) + base
    b[indices] += values
    w[indices] += values


def load(target: F32, source: Any) -> None:
    np.copyto(target, source)


def host(vector: F32) -> F32:
    return vector

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

from taut.codecs.kernels.cpu.compilation import kernel
from taut.codecs.kernels.cpu.scans import scan_tether, scan_threshold
from taut.codecs.math.density_control import SAMPLE
from taut.codecs.parallel import HEAVY, over
from taut.codecs.wire.payload import CHUNK, bit_values
from taut.codecs.wire.sign_list import Signs, collect, side_by_side

F32 = npt.NDArray[np.float32]
U32 = npt.NDArray[np.uint32]
U8 = npt.NDArray[np.uint8]

FUSES = True  # a compressor may have a pass of its own over w, b and r
_1, _2 = np.uint64(1), np.uint64(2)
_STAGGER_NBYTES = 448  # vectors that start at the same place of a page slow each other's stores and loads

_vector = types.Array(types.float32, 1, "C")
_words = types.Array(types.uint32, 1, "C")
_words_in = types.Array(types.uint32, 1, "C", readonly=True)
_bits = types.Array(types.uint8, 1, "C")
_index, _f32 = types.uint64, types.float32  # unsigned: numba then leaves out the wrap-around of negative indices
_found = types.UniTuple(types.uint64, 2)  # type: ignore[no-untyped-call]

_scan_tether = kernel(_found(_vector, _vector, _index, _index, _index, _f32, _f32, _f32, _words))(scan_tether)
_scan_threshold = kernel(_found(_vector, _vector, _vector, _index, _index, _index, _f32, _f32, _words))(scan_threshold)


@kernel(types.void(_vector, _vector, _f32, _vector))
def _mean(w, b, share, change):  # type: ignore[no-untyped-def]
    for i in range(change.size):
        moved = (w[i] - b[i]) * share
        change[i] = moved
        b[i] += moved
        w[i] = b[i]


@kernel(types.void(_vector, _vector, _index, _words_in, _f32))
def _add_words(w, b, base, words, quantum):  # type: ignore[no-untyped-def]
    """b and w += ±quantum at every word. The indices were validated."""
    for j in range(words.size):
        i = base + np.uint64(words[j] >> np.uint32(1))
        change = -quantum if words[j] & np.uint32(1) else quantum
        b[i] += change
        w[i] += change


@kernel(types.void(_vector, _vector, types.Array(types.float32, 1, "C", readonly=True)))
def _add_values(w, b, values):  # type: ignore[no-untyped-def]
    for i in range(values.size):
        b[i] += values[i]
        w[i] += values[i]


@kernel(types.void(_words_in, _index, _bits))
def _write_bits(words, first, bits):  # type: ignore[no-untyped-def]
    """Words of elements from ``first`` on into a bitmap that starts there."""
    for j in range(words.size):
        i = np.uint64(words[j] >> np.uint32(1)) - first
        code = np.uint8(1) + np.uint8(words[j] & np.uint32(1))
        bits[i >> _2] |= np.uint8(code << np.uint8((i & np.uint64(3)) << _1))


def like(w: F32, place: int, filled: bool) -> F32:
    """A vector beside ``w``, a copy of it or zeros, set off against it within a page; ``place``: 1, 2, ..."""
    room = np.empty(w.nbytes + 4096 + 64, np.uint8)  # not zeros: NumPy asks for huge pages here only
    shift = (w.ctypes.data + place * _STAGGER_NBYTES - room.ctypes.data) % 4096
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

    return side_by_side(part, lo, hi, out, _write_bits)


def threshold(w: F32, b: F32, r: F32, lo: int, hi: int, tau: float, share: float, out: U32) -> Signs:
    """Scan ``lo..hi-1`` for the threshold codec: r += (w - b) * share, one ±tau per element."""
    f32 = np.float32

    def part(start: int, stop: int, room: U32) -> Signs:
        scan = lambda at: _scan_threshold(w, b, r, at, stop, start, f32(tau), f32(share), room)  # noqa: E731
        return collect(scan, start, stop, room, _write_bits)

    return side_by_side(part, lo, hi, out, _write_bits)


def mean(w: F32, b: F32, lo: int, hi: int, share: float) -> F32:
    """Scan for the dense codec: the change times ``share``, which b takes and w keeps."""
    change: F32 = np.empty(hi - lo, np.float32)

    def some(start: int, stop: int) -> None:
        _mean(w[start:stop], b[start:stop], np.float32(share), change[start - lo : stop - lo])

    over(some, lo, hi)
    return change


def sample(x: F32, y: F32 | None, lo: int, hi: int) -> F32:
    """|x - y| (or |x|) of up to 2^16 elements, evenly spaced over ``lo..hi-1``."""
    step = (hi - lo - 1) // SAMPLE + 1
    found: F32 = np.abs(x[lo:hi:step] if y is None else x[lo:hi:step] - y[lo:hi:step])
    return found


def add_words(w: F32, b: F32, base: int, words: U32, quantum: float) -> None:
    _add_words(w, b, base, words, np.float32(quantum))


def add_bits(w: F32, b: F32, base: int, length: int, bits: U8, quantum: float) -> None:
    """A look-up of four elements per byte, then whole vectors: three times as fast as a loop with or without branches."""

    def some(lo: int, hi: int) -> None:
        for start in range(lo, hi, CHUNK):
            stop = min(start + CHUNK, hi)
            signs = np.take(_four_signs(), bits[start // 4 : (stop + 3) // 4]).view(np.int8)[: stop - start]
            change = signs.astype(np.float32)
            change *= np.float32(quantum)
            b[base + start : base + stop] += change
            w[base + start : base + stop] += change

    over(some, 0, length, CHUNK, HEAVY)


@cache
def _four_signs() -> U32:
    return np.ascontiguousarray(bit_values()).view(np.uint32).ravel()


def add_values(w: F32, b: F32, base: int, values: F32) -> None:
    _add_values(w[base : base + values.size], b[base : base + values.size], np.ascontiguousarray(values, np.float32))


def add_at(w: F32, b: F32, base: int, indices: npt.NDArray[Any], values: F32) -> None:
    places = indices.astype(np.int64) + base
    b[places] += values
    w[places] += values


def load(target: F32, source: Any) -> None:
    np.copyto(target, source)


def host(vector: F32) -> F32:
    return vector

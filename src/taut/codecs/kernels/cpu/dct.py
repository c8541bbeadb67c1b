"""Cosine transforms of 64 points, many side by side, in numba: chunk by chunk, in the processor's cache. The same bits as
the torch operations of ``math/dct.py``: float32, one rounding per operation, the same order.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numba import types

from taut.codecs.kernels.cpu.array_types import F32, F32_IN, U16, U16_IN, tuple_of
from taut.codecs.kernels.cpu.compilation import kernel, part
from taut.codecs.math.dct import HALF_SECANTS, LIMIT, POINTS, SCALES

_int = types.int64
_limit = np.float32(LIMIT)
_zero = np.float32(0.0)
_magnitude = np.uint32(0x7FFFFFFF)


def _plan(rows: list[int]) -> tuple[list[tuple[int, int, float]], list[tuple[int, int]], list[int]]:
    """Return Lee's steps for points that lie in these rows, all in place: butterflies (row, row, factor), then additions
    (to, from), and the rows in which the coefficients end up."""
    if len(rows) == 1:
        return [], [], rows
    half = len(rows) // 2
    differences = rows[: half - 1 : -1]
    wings = list(zip(rows[:half], differences, HALF_SECANTS[len(rows)].tolist(), strict=True))
    left, right = _plan(rows[:half]), _plan(differences)
    additions = left[1] + right[1] + list(pairwise(right[2]))
    order = [row for pair in zip(left[2], right[2], strict=True) for row in pair]
    return wings + left[0] + right[0], additions, order


_wings, _additions, _rows = _plan(list(range(POINTS)))
_WINGS = np.array([pair[:2] for pair in _wings], np.intp)
_FACTORS = np.array([pair[2] for pair in _wings], np.float32)
_ADDITIONS = np.array(_additions, np.intp)
_ORDER = np.array(_rows, np.intp)


@part
def _forward(a, b):  # type: ignore[no-untyped-def]
    """Transform the columns of ``a`` (64, 64), which is overwritten; the coefficients of a column become a row of
    ``b``."""
    for step in range(192):
        factor = _FACTORS[step]
        one, other = a[_WINGS[step, 0]], a[_WINGS[step, 1]]
        for lane in range(64):
            x, y = one[lane], other[lane]
            one[lane] = x + y
            other[lane] = (x - y) * factor
    for step in range(129):
        to, source = a[_ADDITIONS[step, 0]], a[_ADDITIONS[step, 1]]
        for lane in range(64):
            to[lane] += source[lane]
    for start in range(0, 64, 16):
        for lane in range(64):
            for k in range(start, start + 16):
                b[lane, k] = a[_ORDER[k], lane] * SCALES[k]


@part
def _inverse(a, b):  # type: ignore[no-untyped-def]
    """Transform the rows of ``a``, which are coefficients, back into columns of ``b``: the same steps backwards."""
    for start in range(0, 64, 16):
        for lane in range(64):
            for k in range(start, start + 16):
                b[_ORDER[k], lane] = a[lane, k] * SCALES[k]
    for step in range(128, -1, -1):
        to, source = b[_ADDITIONS[step, 1]], b[_ADDITIONS[step, 0]]
        for lane in range(64):
            to[lane] += source[lane]
    for step in range(191, -1, -1):
        factor = _FACTORS[step]
        one, other = b[_WINGS[step, 0]], b[_WINGS[step, 1]]
        for lane in range(64):
            x, y = one[lane], other[lane] * factor
            one[lane] = x + y
            other[lane] = x - y


@part
def _kth(bits, count, k):  # type: ignore[no-untyped-def]
    """Return the k-th largest of ``count`` numbers below 2^31, found bit by bit."""
    found = np.uint32(0)
    for bit in range(30, -1, -1):
        tried = found | np.uint32(1 << bit)
        above = 0
        for i in range(count):
            above += bits[i] >= tried
        if above >= k:
            found = tried
    return found


@part
def _select(coefficients, count, k, bits, rows, some, indices, values):  # type: ignore[no-untyped-def]
    """Select the ``k`` largest of ``count`` coefficients (a multiple of 64), of equal ones the first, by rising index."""
    seen = coefficients.view(np.uint32)
    for row in range(count // 64):
        top = np.uint32(0)
        for i in range(64 * row, 64 * row + 64):
            top = max(top, seen[i] & _magnitude)
        rows[row] = top
    # k rows hold one that is at least this large
    bound = _kth(rows, count // 64, k) if k <= count // 64 else np.uint32(0)
    found = 0
    for row in range(count // 64):
        if rows[row] >= bound:
            for i in range(64 * row, 64 * row + 64):
                magnitude = seen[i] & _magnitude
                bits[found] = magnitude
                some[found] = i
                found += magnitude >= bound
    edge = _kth(bits, found, k)
    ties = k
    for i in range(found):
        ties -= bits[i] > edge
    taken = 0
    for i in range(found):
        if bits[i] > edge or (bits[i] == edge and ties > 0):
            ties -= bits[i] == edge
            indices[taken] = some[i]
            values[taken] = min(max(coefficients[np.int64(some[i])], -_limit), _limit)
            taken += 1


@part
def _restore(indices, values, a, b):  # type: ignore[no-untyped-def]
    """Write the chunk that these coefficients stand for into ``a``."""
    a[:, :] = _zero
    flat = a.reshape(4096)
    for i in range(indices.size):
        flat[np.int64(indices[i])] = values[i]
    _inverse(a, b)
    _inverse(b, a)


@kernel(tuple_of(U16, F32, F32)(F32_IN, _int))
def compress_chunks(v, top):  # type: ignore[no-untyped-def]
    """Return the indices and values of the ``top`` largest coefficients of each chunk of 4096, and the vector that they
    stand for."""
    count = v.size // 4096 * top
    indices, values, q = np.empty(count, np.uint16), np.empty(count, np.float32), np.empty(v.size, np.float32)
    a, b = np.empty((64, 64), np.float32), np.empty((64, 64), np.float32)
    bits, rows = np.empty(4097, np.uint32), np.empty(64, np.uint32)
    some = np.empty(4097, np.uint16)
    flat = a.reshape(4096)
    for chunk in range(v.size // 4096):
        for i in range(4096):  # a slice would be compiled with the text of its error: four seconds
            flat[i] = v[4096 * chunk + i]
        _forward(a, b)
        _forward(b, a)
        some_indices, some_values = indices[top * chunk : top * (chunk + 1)], values[top * chunk : top * (chunk + 1)]
        _select(a.reshape(4096), 4096, top, bits, rows, some, some_indices, some_values)
        _restore(some_indices, some_values, a, b)
        for i in range(4096):
            q[4096 * chunk + i] = flat[i]
    return indices, values, q


@kernel(F32(U16_IN, F32_IN, _int))
def expand_chunks(indices, values, top):  # type: ignore[no-untyped-def]
    """Return the vector that the coefficients of some chunks stand for."""
    out = np.empty(indices.size // top * 4096, np.float32)
    a, b = np.empty((64, 64), np.float32), np.empty((64, 64), np.float32)
    flat = a.reshape(4096)
    for chunk in range(out.size // 4096):
        _restore(indices[top * chunk : top * (chunk + 1)], values[top * chunk : top * (chunk + 1)], a, b)
        for i in range(4096):
            out[4096 * chunk + i] = flat[i]
    return out


@kernel(tuple_of(U16, F32)(F32_IN, _int))
def compress_lines(v, top):  # type: ignore[no-untyped-def]
    """Return the indices and values of the ``top`` largest coefficients of each line of 64, of at most 64 lines; the last
    one is padded with zeros."""
    lines = (v.size + 63) // 64
    indices, values = np.empty(lines * top, np.uint16), np.empty(lines * top, np.float32)
    a, b = np.zeros((64, 64), np.float32), np.empty((64, 64), np.float32)
    bits, rows = np.empty(65, np.uint32), np.empty(1, np.uint32)
    some = np.empty(65, np.uint16)
    for i in range(v.size):
        a[i % 64, i // 64] = v[i]
    _forward(a, b)
    for line in range(lines):
        mine = slice(top * line, top * (line + 1))
        _select(b[line], 64, top, bits, rows, some, indices[mine], values[mine])
    return indices, values


@kernel(F32(U16_IN, F32_IN, _int, _int))
def expand_lines(indices, values, top, size):  # type: ignore[no-untyped-def]
    """Return the ``size`` elements that the coefficients of lines stand for."""
    out = np.empty(size, np.float32)
    a, b = np.zeros((64, 64), np.float32), np.empty((64, 64), np.float32)
    for i in range(indices.size):
        a[i // top, np.int64(indices[i])] = values[i]
    _inverse(a, b)
    for i in range(size):
        out[i] = b[i % 64, i // 64]
    return out

"""The kernels of codecs that send one bit per element, in numba: sums in the order of ``ordered_sums.py``, the means of
columns, and the values of bits. All the same bits as the torch operations of ``sign.py`` and ``onebit.py``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from taut.codecs.kernels.cpu import array_types as a
from taut.codecs.kernels.cpu.compilation import kernel, part
from taut.codecs.math.ordered_sums import BLOCK
from taut.codecs.parallel import HEAVY, run_parts
from taut.codecs.wire.layouts.onebit import LONGEST

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
U8 = npt.NDArray[np.uint8]

_zero = np.float32(0.0)
_1, _2, _7, _8 = np.uint64(1), np.uint64(2), np.uint64(7), np.uint64(8)
_block = np.uint64(BLOCK)


@part
def _half(length):  # type: ignore[no-untyped-def]
    """Return half of the least power of two that is not below ``length``; at least 1."""
    half = _1
    while _2 * half < length:
        half *= _2
    return half


@part
def _folded(room, half):  # type: ignore[no-untyped-def]
    """Return the sum of the first ``half`` numbers of ``room``, a power of two; they are overwritten."""
    half //= _2
    while half:
        for i in range(half):
            room[i] += room[half + i]
        half //= _2
    return room[0]


@kernel(types.void(a.F32_IN, types.boolean, a.F64))
def _block_sums(v, squared, sums):  # type: ignore[no-untyped-def]
    """Write the sums of |v|, or of its squares, of each block into ``sums``."""
    room = np.empty(BLOCK // 2, np.float64)
    for block in range(np.uint64(sums.size)):
        start = block * _block
        length = min(_block, np.uint64(v.size) - start)
        half = _half(length)
        first = min(half, length)
        room[first:half] = 0.0
        if squared:
            for i in range(first):
                room[i] = np.float64(v[start + i]) * np.float64(v[start + i])
            for i in range(length - first):
                room[i] += np.float64(v[start + half + i]) * np.float64(v[start + half + i])
        else:
            for i in range(first):
                room[i] = np.float64(abs(v[start + i]))
            for i in range(length - first):
                room[i] += np.float64(abs(v[start + half + i]))
        sums[block] = _folded(room, half)


@part
def _fold_sides(v, start, length, plus, minus):  # type: ignore[no-untyped-def]
    """Return the sums of the elements above zero and of those below, of one block. Each has a loop of its own: together
    they do not vectorize. Zeros are positive ones, so that padding does not change them."""
    half = _half(length)
    first = min(half, length)
    plus[first:half] = 0.0
    minus[first:half] = 0.0
    for i in range(first):
        x = v[start + i]
        plus[i] = np.float64(x if x > _zero else _zero)
    for i in range(first):
        x = v[start + i]
        minus[i] = np.float64(x if x < _zero else _zero)
    for i in range(length - first):
        x = v[start + half + i]
        plus[i] += np.float64(x if x > _zero else _zero)
    for i in range(length - first):
        x = v[start + half + i]
        minus[i] += np.float64(x if x < _zero else _zero)
    return _folded(plus, half), _folded(minus, half)


@part
def _column_sums(v, start, stop, room, sums):  # type: ignore[no-untyped-def]
    """Return the sums of the elements above zero and of those below, of a column. ``room``: a buffer for halves of
    blocks, ``sums``: for the sums of blocks."""
    plus, minus = room
    if stop - start <= _block:
        return _fold_sides(v, start, stop - start, plus, minus)
    blocks = np.uint64(0)
    while start < stop:
        length = min(_block, stop - start)
        sums[0, blocks], sums[1, blocks] = _fold_sides(v, start, length, plus, minus)
        blocks += _1
        start += length
    whole = _2 * _half(blocks)
    sums[:, blocks:whole] = 0.0
    return _folded(sums[0], whole), _folded(sums[1], whole)


@kernel(types.void(a.F32_IN, types.uint64, a.F32, a.F32, a.F32))
def _columns(v, length, above, below, q):  # type: ignore[no-untyped-def]
    """Write the two means of every column of ``length`` elements (the last perhaps shorter), and the mean that stands for
    each element of v into q."""
    room = np.empty(BLOCK // 2, np.float64), np.empty(BLOCK // 2, np.float64)
    sums = np.empty((2, LONGEST // BLOCK), np.float64)
    for column in range(np.uint64(above.size)):
        start = column * length
        stop = min(start + length, np.uint64(v.size))
        high, low = _column_sums(v, start, stop, room, sums)
        negative = np.int64(0)
        for i in range(start, stop):
            negative += np.int64(v[i] < _zero)
        positive = np.int64(stop - start) - negative
        up = np.float32(high / np.float64(positive)) if positive else _zero
        down = np.float32(low / np.float64(negative)) if negative else _zero
        above[column] = up
        below[column] = down
        for i in range(start, stop):
            q[i] = down if v[i] < _zero else up


@kernel(types.void(a.F32_IN, types.float32, a.F32))
def signs(v, scale, q):  # type: ignore[no-untyped-def]
    """Set q = -scale where v is below zero, scale elsewhere."""
    for i in range(v.size):
        q[i] = -scale if v[i] < _zero else scale


@part
def _choose_column(bits, first_bit, up, down, q, start, stop):  # type: ignore[no-untyped-def]
    """Set q[start:stop] = down where the bit is set, else up; bit ``first_bit`` belongs to q[0]. Whole bytes go
    together."""
    differ = up ^ down
    i = start
    while i < stop and (first_bit + i) & _7:
        q[i] = down if (bits[(first_bit + i) // _8] >> np.uint8((first_bit + i) & _7)) & np.uint8(1) else up
        i += _1
    first = (first_bit + i) // _8
    for byte in range((stop - i) // _8):
        code = np.int32(bits[first + byte])
        for bit in range(_8):
            q[i + byte * _8 + bit] = up ^ (differ & -((code >> np.int32(bit)) & np.int32(1)))
    i += (stop - i) // _8 * _8
    while i < stop:
        q[i] = down if (bits[(first_bit + i) // _8] >> np.uint8((first_bit + i) & _7)) & np.uint8(1) else up
        i += _1


@kernel(types.void(a.U8_IN, types.uint64, types.uint64, types.uint64, a.I32_IN, a.I32_IN, a.I32))
def _choose(bits, first_bit, offset, length, above, below, q):  # type: ignore[no-untyped-def]
    """Fill q column by column. All floats are taken as whole numbers, so that masks can choose among them."""
    size = np.uint64(q.size)
    start = np.uint64(0)
    while start < size:
        column = (offset + start) // length
        stop = min((column + _1) * length - offset, size)
        _choose_column(bits, first_bit, above[column], below[column], q, start, stop)
        start = stop


def block_sums(v: F32, squared: bool) -> F64:
    """Return the sum of |v|, or of its squares, of each block, in order."""
    sums: F64 = np.empty(-(-v.size // BLOCK), np.float64)

    def some(start: int, stop: int) -> None:
        _block_sums(v[start:stop], squared, sums[start // BLOCK : -(-stop // BLOCK)])

    run_parts(some, 0, v.size, BLOCK)
    return sums


def columns(v: F32, length: int, q: F32) -> tuple[F32, F32]:
    """Return the means at or above zero and below it of every column; write the mean that stands for each element into
    ``q``."""
    above: F32 = np.empty(-(-v.size // length), np.float32)
    below: F32 = np.empty(above.size, np.float32)

    def some(start: int, stop: int) -> None:
        mine = slice(start // length, -(-stop // length))
        _columns(v[start:stop], length, above[mine], below[mine], q[start:stop])

    run_parts(some, 0, v.size, length, HEAVY)
    return above, below


def choose(bits: U8, first_bit: int, size: int, columns: tuple[int, int], above: F32, below: F32) -> F32:
    """Return the values of ``size`` bits from bit ``first_bit`` on (1: below). ``columns``: the index of the first of
    them within its column, and the elements of a column."""
    q: F32 = np.empty(size, np.float32)
    whole = np.int32
    _choose(bits, first_bit, *columns, above.view(whole), below.view(whole), q.view(whole))
    return q

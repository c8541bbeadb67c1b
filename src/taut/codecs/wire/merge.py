"""Merging: several payloads become one that does the same, in the smallest of the kinds (see ``payload``).

Updates add, so a queue that a slow receiver has not taken yet can be folded into one. ±quantum kinds are added as whole
numbers of a unit that divides all their quanta: exact, whatever the order. With others among them (dense float32, bodies
of compressors) the sum is of float32 numbers, right within rounding: for some elements if all of them are sparse and that
is shorter, or else for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from taut.codecs.parallel import HEAVY, run_chunks, run_parts
from taut.codecs.wire.layouts import LAYOUTS, DenseLayout, SparseLayout
from taut.codecs.wire.payload import (
    CHUNK,
    COUNTS,
    PAIRS,
    Bytes,
    Header,
    Kind,
    bit_values,
    body_of,
    build,
    index_type,
    read,
    read_pairs,
)
from taut.codecs.wire.rice import encode
from taut.codecs.wire.validate import rice_words, validate
from taut.errors import MalformedMessage

I64 = npt.NDArray[np.int64]
WHOLE = frozenset((Kind.WORDS, Kind.BITMAP, Kind.RICE, *COUNTS, *PAIRS))  # kinds that add as whole numbers
SPARSE_KINDS = frozenset((Kind.WORDS, Kind.RICE, *PAIRS))
_SPREAD = 4  # elements of the covered range per byte of payload, beyond which indices are sorted instead


def merge(payloads: Sequence[Bytes], size: int = 2**64) -> bytes:
    """Return one payload with the sum of ``payloads``: exact for ±quantum kinds, never larger than a dense vector of
    4-byte numbers over the range they cover together. ``size``: of the vector, if known. Raises ``MalformedMessage``.

    >>> from taut.codecs.wire.payload import header
    >>> def word(index, quantum):
    ...     return build(Header(Kind.WORDS, quantum, 0, 64, 1), np.array([index << 1], np.uint32))
    >>> validate(merge([word(3, 0.5), word(4, 0.25)]), 64)
    Header(kind=<Kind.PAIRS8: 7>, quantum=0.25, base=0, length=64, count=2)
    """
    heads = [validate(payload, size) for payload in payloads]
    if not heads:
        raise MalformedMessage("nothing to merge")
    if len(heads) == 1:
        return bytes(payloads[0])
    base = min(head.base for head in heads)
    length = max(head.base + head.length for head in heads) - base
    unit = common_unit([head.quantum for head in heads if head.kind in WHOLE])
    if any(head.kind not in WHOLE for head in heads) or unit == 0.0:
        return _merge_values(payloads, heads, base, length)
    if length > _SPREAD * sum(len(payload) for payload in payloads):
        found = []
        for payload, head in zip(payloads, heads, strict=True):
            some, numbers = _entries(payload, head)
            found.append((some + (head.base - base), numbers * round(head.quantum / unit)))
        indices, sums = _sum_entries(found, np.int64)
        indices, numbers = indices[sums != 0], sums[sums != 0]
    else:
        sums = np.zeros(length, np.int64)
        for payload, head in zip(payloads, heads, strict=True):
            _accumulate(sums, payload, head, base, round(head.quantum / unit))
        indices = np.flatnonzero(sums)
        numbers = sums[indices]
    return pack(indices, numbers, unit, base, length)


def common_unit(quanta: Sequence[float]) -> float:
    """Return the largest number of which every quantum is a whole multiple; 0.0 if none is useful (the quanta are so far
    apart that their multiples leave the exact range).

    >>> common_unit([0.5, 0.375]), common_unit([])
    (0.125, 0.0)
    """
    if not quanta:
        return 0.0
    exponent = min(math.frexp(quantum)[1] for quantum in quanta) - 24
    whole = [math.ldexp(quantum, -exponent) for quantum in quanta]  # integers: a float32 has 24 bits
    if max(whole) > 2.0**60:
        return 0.0
    divisor = math.gcd(*(int(number) for number in whole))
    return math.ldexp(divisor, exponent) if max(whole) / divisor < 2**20 else 0.0


def pack(indices: I64, numbers: I64, unit: float, base: int, length: int) -> bytes:
    """Write ``numbers`` (not zero, in units) at the rising ``indices`` as a payload of the smallest kind that can hold
    them."""
    largest = int(np.abs(numbers).max()) if numbers.size else 0
    words = int(np.abs(numbers).sum())
    sizes: dict[Kind, int] = {}
    if words <= length <= 2**31:  # else they would be longer than the vector
        sizes[Kind.WORDS] = 4 * words
    if largest <= 1:
        sizes[Kind.BITMAP] = (length + 3) // 4
    for pairs, counts in zip(PAIRS, COUNTS, strict=True):
        width = np.dtype(COUNTS[counts]).itemsize
        if largest <= np.iinfo(COUNTS[counts]).max:
            sizes[counts] = width * length
            if indices.size < 2**32:
                sizes[pairs] = (np.dtype(index_type(length)).itemsize + width) * indices.size
    if not sizes:  # sums past 2^31 units: beyond the exact range in any case
        return _pack_values(indices, (numbers * unit).astype(np.float32), base, length)
    kind = min(sizes, key=lambda one: (sizes[one], one))
    best = _write(kind, indices, numbers, unit, base, length)
    if largest == 1 and length <= 2**31:
        return min(pack_words((indices << 1 | (numbers < 0)).astype(np.uint32), unit, base, length), best, key=len)
    return best


def _pack_values(indices: I64, numbers: npt.NDArray[np.float32], base: int, length: int) -> bytes:
    """Write float32 numbers as a payload: for some elements if that is shorter, or else for all."""
    if 8 * indices.size < 4 * length and length <= 2**32:
        return build(Header(Kind.SPARSE, 0.0, base, length, indices.size), indices.astype(np.uint32), numbers)
    if length > 2**32:
        raise MalformedMessage(f"sums that cannot be written down for a range of {length} elements")
    values = np.zeros(length, np.float32)
    values[indices] = numbers
    return build(Header(Kind.DENSE, 0.0, base, length, length), values)


def pack_words(words: npt.NDArray[np.uint32], quantum: float, base: int, length: int) -> bytes:
    """Write words whose indices rise in the shorter of the two kinds: entropy-coded, but for a few very far apart."""
    body = encode(words, length)
    if body.nbytes < words.nbytes:
        return build(Header(Kind.RICE, quantum, base, length, words.size), body)
    return build(Header(Kind.WORDS, quantum, base, length, words.size), words)


def _write(kind: Kind, indices: I64, numbers: I64, unit: float, base: int, length: int) -> bytes:
    if kind is Kind.WORDS:
        words = np.repeat(indices << 1 | (numbers < 0), np.abs(numbers)).astype(np.uint32)
        return build(Header(kind, unit, base, length, words.size), words)
    if kind in PAIRS:
        head = Header(kind, unit, base, length, indices.size)
        return build(head, indices.astype(index_type(length)), numbers.astype(PAIRS[kind]))
    if kind is Kind.BITMAP:
        bits = write_bitmap(indices, numbers < 0, length)
        return build(Header(kind, unit, base, length, indices.size), bits)
    dense = np.zeros(length, COUNTS[kind])
    dense[indices] = numbers
    return build(Header(kind, unit, base, length, length), dense)


def write_bitmap(indices: I64, minus: npt.NDArray[np.bool_], length: int) -> npt.NDArray[np.uint8]:
    """Return the body of a bitmap with signs at the given indices, none of which comes twice."""
    bits = np.zeros((length + 3) // 4, np.uint8)
    codes = np.where(minus, 2, 1).astype(np.uint8)
    for slot in range(4):  # in one slot no byte comes twice, so the plain |= reaches every one
        here = indices & 3 == slot
        bits[indices[here] >> 2] |= codes[here] << (2 * slot)
    return bits


def _sum_entries(found: Sequence[tuple[npt.NDArray[Any], npt.NDArray[Any]]], dtype: type) -> tuple[I64, npt.NDArray[Any]]:
    """Add up the numbers at each index; return the rising indices and their sums. The memory that this takes is that of
    the entries, not of the range that they cover."""
    indices, where = np.unique(np.concatenate([some for some, _ in found]), return_inverse=True)
    sums: npt.NDArray[Any] = np.zeros(indices.size, dtype)
    np.add.at(sums, where, np.concatenate([numbers for _, numbers in found]))
    return indices, sums


def _entries(payload: Bytes, head: Header) -> tuple[I64, I64]:
    """Return indices (relative to the payload's base) and numbers of a payload of whole numbers."""
    if head.kind is Kind.BITMAP or head.kind in COUNTS:
        dense = dense_numbers(payload, head, 0, head.length)
        indices = np.flatnonzero(dense)
        return indices, dense[indices].astype(np.int64)
    if head.kind is Kind.WORDS or head.kind is Kind.RICE:
        words = read(payload, np.uint32, head.count) if head.kind is Kind.WORDS else rice_words(payload, head)
        return (words >> 1).astype(np.int64), 1 - 2 * (words & 1).astype(np.int64)
    indices, numbers = read_pairs(payload, head)
    return indices.astype(np.int64), numbers.astype(np.int64)


def _accumulate(sums: npt.NDArray[Any], payload: Bytes, head: Header, base: int, scale: float) -> None:
    """Add scale x the payload's numbers to ``sums`` (which begins at element ``base``), in place."""
    target = sums[head.base - base : head.base - base + head.length]
    if head.kind in SPARSE_KINDS:
        indices, numbers = _entries(payload, head)
        np.add.at(target, indices, numbers * scale)
        return

    def add(start: int, stop: int) -> None:
        target[start:stop] += dense_numbers(payload, head, start, stop) * target.dtype.type(scale)

    run_chunks(add, 0, head.length, CHUNK, HEAVY)


def dense_numbers(payload: Bytes, head: Header, start: int, stop: int) -> npt.NDArray[Any]:
    """Return elements ``start..stop-1`` (``start`` a multiple of 4) of a dense payload's range: signs, counts or
    values."""
    if head.kind is Kind.BITMAP:
        bits = read(payload, np.uint8, (stop + 3) // 4 - start // 4, start // 4)
        signs: npt.NDArray[np.int8] = bit_values()[bits].reshape(-1)[: stop - start]
        return signs
    dtype = np.float32 if head.kind is Kind.DENSE else COUNTS[head.kind]
    return read(payload, dtype, stop - start, start * np.dtype(dtype).itemsize)


def _merge_values(payloads: Sequence[Bytes], heads: Sequence[Header], base: int, length: int) -> bytes:
    if all(head.kind in SPARSE_KINDS or isinstance(LAYOUTS.get(head.kind), SparseLayout) for head in heads):
        found = []
        for payload, head in zip(payloads, heads, strict=True):
            some, values = entries(payload, head)
            found.append((some.astype(np.int64) + (head.base - base), values))
        indices, sums = _sum_entries(found, np.float64)
        return _pack_values(indices, sums.astype(np.float32), base, length)
    sums = np.zeros(length, np.float64)
    for payload, head in zip(payloads, heads, strict=True):
        add_values_to(sums[head.base - base :], payload, head)
    return build(Header(Kind.DENSE, 0.0, base, length, length), sums.astype(np.float32))


def entries(payload: Bytes, head: Header) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
    """Return indices (relative to the base) and float32 values of a sparse payload that was validated; words may repeat
    an index."""
    layout = LAYOUTS.get(head.kind)
    if isinstance(layout, SparseLayout):
        return layout.entries(head, body_of(payload))
    indices, numbers = _entries(payload, head)
    return indices, numbers.astype(np.float32) * np.float32(head.quantum)


def add_values_to(target: npt.NDArray[Any], payload: Bytes, head: Header) -> None:
    """Add the values of a payload, which was validated, to ``target``, which begins at the payload's base."""
    layout = LAYOUTS.get(head.kind)
    if isinstance(layout, SparseLayout):
        indices, values = layout.entries(head, body_of(payload))
        target[indices] += values
    elif isinstance(layout, DenseLayout):
        _add_pieces(target, layout, head, body_of(payload))
    else:
        _accumulate(target, payload, head, head.base, 1.0 if head.kind is Kind.DENSE else head.quantum)


def _add_pieces(target: npt.NDArray[Any], layout: DenseLayout, head: Header, body: npt.NDArray[np.uint8]) -> None:
    def some(lo: int, hi: int) -> None:
        for start, values in layout.pieces(head, body, lo, hi):
            target[start : start + len(values)] += values

    run_parts(some, 0, head.length, CHUNK, HEAVY)


def expand(payload: Bytes, size: int) -> npt.NDArray[np.float32]:
    """Return the update as a plain vector of ``size`` elements. Raises ``MalformedMessage``.

    >>> expand(build(Header(Kind.WORDS, 0.5, 2, 64, 1), np.array([1 << 1 | 1], np.uint32)), 66)[:4].tolist()
    [0.0, 0.0, 0.0, -0.5]
    """
    head = validate(payload, size)
    values = np.zeros(size, np.float32)
    add_values_to(values[head.base :], payload, head)
    return values

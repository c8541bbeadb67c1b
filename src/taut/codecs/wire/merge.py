"""Merging: several payloads become one that does the same, in the smallest of the kinds (see ``payload``).

Updates add, so a queue that a slow receiver has not taken yet can be folded into one. ±quantum kinds are
added as whole numbers of a unit that divides all their quanta: exact, whatever the order. With others among them
(dense float32, what a compressor wrote) the sum is of float32 numbers, right within rounding: for some elements if all
of them are sparse and that is shorter, or else for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from taut.codecs.parallel import HEAVY, over
from taut.codecs.wire.layouts import FORMS, DenseLayout, SparseLayout
from taut.codecs.wire.payload import (
    CHUNK,
    COUNTS,
    FORMAT_VERSION,
    HEADER,
    PAIRS,
    Bytes,
    Header,
    Kind,
    bit_values,
    body_of,
    build,
    header,
    index_type,
    read,
    read_pairs,
)
from taut.codecs.wire.rice import encode
from taut.codecs.wire.validate import rice_words, validate
from taut.errors import MalformedMessage

__all__ = ["FORMAT_VERSION", "HEADER", "Header", "Kind", "build", "header", "merge", "pack", "validate"]

I64 = npt.NDArray[np.int64]
WHOLE = frozenset((Kind.WORDS, Kind.BITMAP, Kind.RICE, *COUNTS, *PAIRS))  # kinds that add as whole numbers
SPARSE_KINDS = frozenset((Kind.WORDS, Kind.RICE, *PAIRS))
_SPREAD = 4  # elements of the covered range per byte of payload, beyond which indices are sorted instead


def merge(payloads: Sequence[Bytes], size: int = 2**64) -> bytes:
    """One payload with the sum of ``payloads``: exact for ±quantum kinds, never larger than a dense vector of
    4-byte numbers over the range they cover together. ``size``: of the vector, if known. Raises
    ``MalformedMessage``.

    >>> def word(index, quantum):
    ...     return build(Header(Kind.WORDS, quantum, 0, 64, 1), np.array([index << 1], np.uint32))
    >>> header(merge([word(3, 0.5), word(4, 0.25)]))
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
        indices, numbers = _sum_sparse(payloads, heads, base, unit)
    else:
        sums = np.zeros(length, np.int64)
        for payload, head in zip(payloads, heads, strict=True):
            _accumulate(sums, payload, head, base, round(head.quantum / unit))
        indices = np.flatnonzero(sums)
        numbers = sums[indices]
    return pack(indices, numbers, unit, base, length)


def common_unit(quanta: Sequence[float]) -> float:
    """The largest number of which every quantum is a whole multiple; 0.0 where none would be of use (so far
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
    """``numbers`` (not zero, in units) at the rising ``indices`` as a payload of the smallest kind that can
    hold them."""
    largest = int(np.abs(numbers).max()) if numbers.size else 0
    words = int(np.abs(numbers).sum())
    sizes: dict[Kind, int] = {}
    if words <= length <= 2**31:  # or they would be longer than the vector
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


def _pack_values(places: I64, numbers: npt.NDArray[np.float32], base: int, length: int) -> bytes:
    """The same of float32 numbers: for some elements where that is shorter, or else for all."""
    if 8 * places.size < 4 * length and length <= 2**32:
        return build(Header(Kind.SPARSE, 0.0, base, length, places.size), places.astype(np.uint32), numbers)
    if length > 2**32:
        raise MalformedMessage(f"sums that cannot be written down for a range of {length} elements")
    values = np.zeros(length, np.float32)
    values[places] = numbers
    return build(Header(Kind.DENSE, 0.0, base, length, length), values)


def pack_words(words: npt.NDArray[np.uint32], quantum: float, base: int, length: int) -> bytes:
    """Words whose indices rise, in the shorter of the two kinds: entropy-coded, but for a few very far apart."""
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
    """The body of a bitmap with signs at the given places, none of which comes twice."""
    bits = np.zeros((length + 3) // 4, np.uint8)
    codes = np.where(minus, 2, 1).astype(np.uint8)
    for place in range(4):  # within one of these no byte comes twice, so the plain |= reaches every one
        here = indices & 3 == place
        bits[indices[here] >> 2] |= codes[here] << (2 * place)
    return bits


def _sum_sparse(payloads: Sequence[Bytes], heads: Sequence[Header], base: int, unit: float) -> tuple[I64, I64]:
    """Rising places and their numbers, not zero: takes memory for what the payloads hold, not for what they
    cover."""
    places, numbers = [], []
    for payload, head in zip(payloads, heads, strict=True):
        some_places, some_numbers = _entries(payload, head)
        places.append(some_places + (head.base - base))
        numbers.append(some_numbers * round(head.quantum / unit))
    indices, where = np.unique(np.concatenate(places), return_inverse=True)
    sums = np.zeros(indices.size, np.int64)
    np.add.at(sums, where, np.concatenate(numbers))
    return indices[sums != 0], sums[sums != 0]


def _entries(payload: Bytes, head: Header) -> tuple[I64, I64]:
    """Places (relative to the payload's base) and numbers of a payload of whole numbers."""
    if head.kind is Kind.BITMAP or head.kind in COUNTS:
        dense = dense_numbers(payload, head, 0, head.length)
        places = np.flatnonzero(dense)
        return places, dense[places].astype(np.int64)
    if head.kind is Kind.WORDS or head.kind is Kind.RICE:
        words = read(payload, np.uint32, head.count) if head.kind is Kind.WORDS else rice_words(payload, head)
        return (words >> 1).astype(np.int64), 1 - 2 * (words & 1).astype(np.int64)
    indices, numbers = read_pairs(payload, head)
    return indices.astype(np.int64), numbers.astype(np.int64)


def _accumulate(sums: npt.NDArray[Any], payload: Bytes, head: Header, base: int, scale: float) -> None:
    """``sums`` (which begins at element ``base``) += scale x the payload's numbers, in place."""
    target = sums[head.base - base : head.base - base + head.length]
    if head.kind in SPARSE_KINDS:
        places, numbers = _entries(payload, head)
        np.add.at(target, places, numbers * scale)
        return

    def some(lo: int, hi: int) -> None:
        for start in range(lo, hi, CHUNK):
            stop = min(start + CHUNK, hi)
            target[start:stop] += dense_numbers(payload, head, start, stop) * target.dtype.type(scale)

    over(some, 0, head.length, CHUNK, HEAVY)


def dense_numbers(payload: Bytes, head: Header, start: int, stop: int) -> npt.NDArray[Any]:
    """Elements ``start..stop-1`` (``start`` a multiple of 4) of a dense payload's range: signs, counts or
    values."""
    if head.kind is Kind.BITMAP:
        bits = read(payload, np.uint8, (stop + 3) // 4 - start // 4, start // 4)
        signs: npt.NDArray[np.int8] = bit_values()[bits].reshape(-1)[: stop - start]
        return signs
    dtype = np.float32 if head.kind is Kind.DENSE else COUNTS[head.kind]
    return read(payload, dtype, stop - start, start * np.dtype(dtype).itemsize)


def _merge_values(payloads: Sequence[Bytes], heads: Sequence[Header], base: int, length: int) -> bytes:
    if all(head.kind in SPARSE_KINDS or isinstance(FORMS.get(head.kind), SparseLayout) for head in heads):
        return _pack_values(*_sum_entries(payloads, heads, base), base, length)
    sums = np.zeros(length, np.float64)
    for payload, head in zip(payloads, heads, strict=True):
        add_values_to(sums[head.base - base :], payload, head)
    return build(Header(Kind.DENSE, 0.0, base, length, length), sums.astype(np.float32))


def _sum_entries(payloads: Sequence[Bytes], heads: Sequence[Header], base: int) -> tuple[I64, npt.NDArray[np.float32]]:
    places, values = [], []
    for payload, head in zip(payloads, heads, strict=True):
        some_places, some_values = entries(payload, head)
        places.append(some_places.astype(np.int64) + (head.base - base))
        values.append(some_values)
    indices, where = np.unique(np.concatenate(places), return_inverse=True)
    sums = np.zeros(indices.size, np.float64)
    np.add.at(sums, where, np.concatenate(values))
    return indices, sums.astype(np.float32)


def entries(payload: Bytes, head: Header) -> tuple[npt.NDArray[Any], npt.NDArray[np.float32]]:
    """Places (relative to the base) and float32 values of a sparse payload that was validated; words may repeat one."""
    form = FORMS.get(head.kind)
    if isinstance(form, SparseLayout):
        return form.entries(head, body_of(payload))
    places, numbers = _entries(payload, head)
    return places, numbers.astype(np.float32) * np.float32(head.quantum)


def add_values_to(target: npt.NDArray[Any], payload: Bytes, head: Header) -> None:
    """``target`` (which begins at the payload's base) += the payload's values; it was validated."""
    form = FORMS.get(head.kind)
    if isinstance(form, SparseLayout):
        places, values = form.entries(head, body_of(payload))
        target[places] += values
    elif isinstance(form, DenseLayout):
        _add_pieces(target, form, head, body_of(payload))
    else:
        _accumulate(target, payload, head, head.base, 1.0 if head.kind is Kind.DENSE else head.quantum)


def _add_pieces(target: npt.NDArray[Any], form: DenseLayout, head: Header, body: npt.NDArray[np.uint8]) -> None:
    def some(lo: int, hi: int) -> None:
        for start, values in form.pieces(head, body, lo, hi):
            target[start : start + len(values)] += values

    over(some, 0, head.length, CHUNK, HEAVY)


def expand(payload: Bytes, size: int) -> npt.NDArray[np.float32]:
    """The update as a plain vector of ``size`` elements. Raises ``MalformedMessage``.

    >>> expand(build(Header(Kind.WORDS, 0.5, 2, 64, 1), np.array([1 << 1 | 1], np.uint32)), 66)[:4].tolist()
    [0.0, 0.0, 0.0, -0.5]
    """
    head = validate(payload, size)
    values = np.zeros(size, np.float32)
    add_values_to(values[head.base :], payload, head)
    return values

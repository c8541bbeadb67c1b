"""Validation: every byte of a payload is checked before anything of it is applied."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from taut.codecs.parallel import run_chunks
from taut.codecs.wire.layouts import LAYOUTS, DenseLayout
from taut.codecs.wire.layouts.base import Layout, check_length
from taut.codecs.wire.payload import (
    CHUNK,
    COUNTS,
    PAIRS,
    Bytes,
    Header,
    Kind,
    bit_values,
    body_of,
    header,
    read,
    read_pairs,
)
from taut.errors import MalformedMessage

_LARGEST = float(np.finfo(np.float32).max)


def validate(payload: Bytes, size: int, layouts: Mapping[Kind, Layout] = LAYOUTS) -> Header:
    """Return the header of a payload that is right in every byte for a vector of ``size`` elements, or raise
    ``MalformedMessage``. ``layouts``: of the bodies that compressors write.

    >>> from taut.codecs.wire.payload import build
    >>> words = np.array([3 << 1 | 1], np.uint32)
    >>> payload = build(Header(Kind.WORDS, 0.5, base=64, length=64, count=1), words)
    >>> validate(payload, 128).kind.name
    'WORDS'
    >>> validate(payload, 100)
    Traceback (most recent call last):
    taut.errors.MalformedMessage: payload for elements 64..127 of a vector of 100
    """
    head, body = frame(payload, size), body_of(payload)
    if head.kind is Kind.RICE:
        rice_words(payload, head)
        return head
    layout = layouts.get(head.kind)
    if layout is None:
        check_length(head, body, head.body_nbytes)
    else:
        layout.check(head, body)
    counts_all = isinstance(layout, DenseLayout) or head.kind is Kind.DENSE or head.kind in COUNTS
    if counts_all and head.count != head.length % 2**32:
        raise MalformedMessage(f"{head.kind.name} payload of {head.length} elements that counts {head.count}")
    if head.kind is Kind.WORDS:
        _check_words(read(payload, np.uint32, head.count), head)
    elif head.kind is Kind.BITMAP:
        _check_bitmap(read(payload, np.uint8, head.body_nbytes), head)
    elif head.kind in PAIRS:
        _check_pairs(read_pairs(payload, head)[0], head)
    elif head.kind is Kind.DENSE:
        _check_finite(read(payload, np.float32, head.length))
    return head


def frame(payload: Bytes, size: int) -> Header:
    """Return the header of a payload that touches elements of a vector of ``size`` only; the body is not checked."""
    head = header(payload)
    if head.length == 0 or head.base + head.length > size:
        raise MalformedMessage(f"payload for elements {head.base}..{head.base + head.length - 1} of a vector of {size}")
    if head.quantum * _most(head) > _LARGEST:
        raise MalformedMessage(f"{head.kind.name} payload with quantum {head.quantum:g}, multiples of which overflow")
    return head


def _most(head: Header) -> int:
    """Return how many quanta an element may change by, as far as the header says."""
    if head.kind is Kind.WORDS:
        return head.count
    numbers = COUNTS.get(head.kind) or PAIRS.get(head.kind)
    return 1 << (8 * np.dtype(numbers).itemsize - 1) if numbers else 1


def rice_words(payload: Bytes, head: Header) -> npt.NDArray[np.uint32]:
    """Return the words of a RICE payload, every one checked."""
    from taut.codecs.wire.rice import decode

    if head.count == 0 or head.length > 2**31:
        raise MalformedMessage(f"RICE payload of {head.count} words for {head.length} elements")
    return decode(body_of(payload), head.count, head.length)


def _check_words(words: npt.NDArray[Any], head: Header) -> None:
    if words.size and int(words.max()) >> 1 >= head.length:
        raise MalformedMessage(f"word for element {int(words.max()) >> 1} of a range of {head.length}")


def _check_bitmap(bits: npt.NDArray[np.uint8], head: Header) -> None:
    def signs_of(start: int, stop: int) -> int:
        signs = _bit_counts()[bits[start:stop]]
        if signs.max() == 255:
            raise MalformedMessage("bitmap with a code that is not used")
        return int(signs.sum(dtype=np.int64))

    count = sum(run_chunks(signs_of, 0, bits.size, CHUNK))
    spare = 2 * (-head.length % 4)
    if spare and int(bits[-1]) >> (8 - spare):
        raise MalformedMessage("bitmap with signs beyond its range")
    if count != head.count:
        raise MalformedMessage(f"bitmap with {count} signs that counts {head.count}")


def _check_pairs(indices: npt.NDArray[Any], head: Header) -> None:
    if indices.size and int(indices[-1]) >= head.length:
        raise MalformedMessage(f"pair for element {int(indices[-1])} of a range of {head.length}")
    if not (indices[1:] > indices[:-1]).all():
        raise MalformedMessage("pairs whose indices do not rise")


def _check_finite(values: npt.NDArray[np.float32]) -> None:
    if not all(run_chunks(lambda start, stop: np.isfinite(values[start:stop]).all(), 0, values.size, CHUNK)):
        raise MalformedMessage("dense payload with a number that is not finite")


@cache
def _bit_counts() -> npt.NDArray[np.uint8]:
    """Return a table: byte of a bitmap -> signs in it; 255 if it holds the code that is not used."""
    values = bit_values()
    return np.where((values == 2).any(1), 255, (values != 0).sum(1)).astype(np.uint8)

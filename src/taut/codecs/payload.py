"""How an update is written down: a header that describes itself, then a body of one of a few kinds.

========  ======================================================================  =========================
kind      body                                                                    element i changes by
========  ======================================================================  =========================
WORDS     ``count`` uint32: ``index << 1 | sign``; an index may come again        ±quantum per word
BITMAP    2 bits per element, 4 to a byte from the low end: 0, 1 (+), 2 (-)       0 or ±quantum
COUNTS8   one int8 per element (COUNTS16, COUNTS32 likewise)                      number x quantum
PAIRS8    ``count`` rising indices, then an int8 each (PAIRS16, 32 likewise)      number x quantum
DENSE     one float32 per element                                                 the number
========  ======================================================================  =========================

Indices are relative to ``base``, so a range of the vector anywhere in 2^64 elements takes 32-bit words;
indices of pairs are uint32, or uint64 where the range is longer than 2^32. All numbers are little-endian.
``validate`` looks at every byte before anything is applied, and allocates no more than the message's size.
"""

from __future__ import annotations

import math
import struct
import sys
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from taut.errors import MalformedMessage

FORMAT_VERSION = 1
HEADER = struct.Struct("<BBHfQQI")  # kind, format version, zero, quantum, base, length, count
CHUNK = 1 << 16  # elements looked at in one go where a kind must be widened

U32 = npt.NDArray[np.uint32]
Bytes = bytes | bytearray | memoryview

assert sys.byteorder == "little", "taut's payloads are read in place and need a little-endian machine"


class Kind(IntEnum):
    WORDS = 1
    BITMAP = 2
    COUNTS8 = 3
    COUNTS16 = 4
    COUNTS32 = 5
    DENSE = 6
    PAIRS8 = 7
    PAIRS16 = 8
    PAIRS32 = 9


COUNTS: dict[Kind, type[np.signedinteger[Any]]] = {
    Kind.COUNTS8: np.int8,
    Kind.COUNTS16: np.int16,
    Kind.COUNTS32: np.int32,
}
PAIRS: dict[Kind, type[np.signedinteger[Any]]] = {
    Kind.PAIRS8: np.int8,
    Kind.PAIRS16: np.int16,
    Kind.PAIRS32: np.int32,
}


@dataclass(frozen=True)
class Header:
    """What a payload says of itself. ``base..base+length-1`` are the elements it may touch; ``count``:
    entries in the body (words, pairs, non-zero places of a bitmap, elements of the dense kinds modulo
    2^32)."""

    kind: Kind
    quantum: float
    base: int
    length: int
    count: int

    @property
    def body_nbytes(self) -> int:
        """How long the body must be."""
        if self.kind is Kind.WORDS:
            return 4 * self.count
        if self.kind is Kind.BITMAP:
            return (self.length + 3) // 4
        if self.kind in PAIRS:
            return self.count * (np.dtype(index_type(self.length)).itemsize + np.dtype(PAIRS[self.kind]).itemsize)
        return self.length * (4 if self.kind is Kind.DENSE else np.dtype(COUNTS[self.kind]).itemsize)


def index_type(length: int) -> type[np.unsignedinteger[Any]]:
    """Of the indices of pairs in a range of ``length`` elements."""
    return np.uint32 if length <= 2**32 else np.uint64


def read_pairs(payload: Bytes, head: Header) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The indices and the numbers of a payload of pairs."""
    indices = read(payload, index_type(head.length), head.count)
    return indices, read(payload, PAIRS[head.kind], head.count, indices.nbytes)


def build(header: Header, *body: npt.NDArray[Any]) -> bytes:
    """The payload: the header, and the arrays of the body one after the other."""
    head = HEADER.pack(header.kind, FORMAT_VERSION, 0, header.quantum, header.base, header.length, header.count % 2**32)
    parts: list[Any] = [head, *(np.ascontiguousarray(part) for part in body)]
    return b"".join(parts)


def read(payload: Bytes, dtype: type[np.generic], count: int, offset: int = 0) -> npt.NDArray[Any]:
    """``count`` numbers from the body, ``offset`` bytes into it: in place, or a copy where the address is
    odd."""
    found = np.frombuffer(payload, np.dtype(dtype), count, HEADER.size + offset)
    return np.require(found, requirements="A")


@cache
def bit_values() -> npt.NDArray[np.int8]:
    """Byte of a bitmap -> the four signs in it; 2 marks the one code that means nothing."""
    codes = (np.arange(256)[:, None] >> np.array([0, 2, 4, 6])) & 3
    values: npt.NDArray[np.int8] = np.array([0, 1, -1, 2], np.int8)[codes]
    return values


@cache
def _bit_counts() -> npt.NDArray[np.uint8]:
    """Byte of a bitmap -> signs in it; 255 where it holds the code that means nothing."""
    values = bit_values()
    return np.where((values == 2).any(1), 255, (values != 0).sum(1)).astype(np.uint8)


def header(payload: Bytes) -> Header:
    """The header, its own fields checked, the body not looked at. Raises ``MalformedMessage``."""
    if len(payload) < HEADER.size:
        raise MalformedMessage(f"payload of {len(payload)} bytes; the header alone has {HEADER.size}")
    code, version, zero, quantum, base, length, count = HEADER.unpack_from(payload)
    if version != FORMAT_VERSION or zero != 0:
        raise MalformedMessage(f"payload format {version}/{zero}; this version of taut reads {FORMAT_VERSION}/0")
    if code not in Kind._value2member_map_:
        raise MalformedMessage(f"payload of unknown kind {code}")
    kind = Kind(code)
    if kind is Kind.DENSE:
        if quantum != 0.0:
            raise MalformedMessage(f"dense payload with quantum {quantum}; it has none")
    elif not (math.isfinite(quantum) and quantum > 0.0):
        raise MalformedMessage(f"payload with quantum {quantum}; a positive number was expected")
    return Header(kind, quantum, base, length, count)


def validate(payload: Bytes, size: int) -> Header:
    """The header of a payload that is right in every byte for a vector of ``size`` elements, or
    ``MalformedMessage``.

    >>> words = np.array([3 << 1 | 1], np.uint32)
    >>> payload = build(Header(Kind.WORDS, 0.5, base=64, length=64, count=1), words)
    >>> validate(payload, 128).kind.name
    'WORDS'
    >>> validate(payload, 100)
    Traceback (most recent call last):
    taut.errors.MalformedMessage: payload for elements 64..127 of a vector of 100
    """
    head = header(payload)
    if head.length == 0 or head.base + head.length > size:
        raise MalformedMessage(f"payload for elements {head.base}..{head.base + head.length - 1} of a vector of {size}")
    body_nbytes = len(payload) - HEADER.size
    if body_nbytes != head.body_nbytes:
        raise MalformedMessage(
            f"{head.kind.name} payload with a body of {body_nbytes} bytes instead of {head.body_nbytes}"
        )
    if head.kind is Kind.WORDS:
        _check_words(read(payload, np.uint32, head.count), head)
    elif head.kind is Kind.BITMAP:
        _check_bitmap(read(payload, np.uint8, head.body_nbytes), head)
    elif head.kind in PAIRS:
        _check_pairs(read_pairs(payload, head)[0], head)
    elif head.count != head.length % 2**32:
        raise MalformedMessage(f"{head.kind.name} payload of {head.length} elements counts {head.count}")
    elif head.kind is Kind.DENSE:
        _check_finite(read(payload, np.float32, head.length))
    return head


def _check_words(words: U32, head: Header) -> None:
    if words.size and int(words.max()) >> 1 >= head.length:
        raise MalformedMessage(f"word for element {int(words.max()) >> 1} of a range of {head.length}")


def _check_bitmap(bits: npt.NDArray[np.uint8], head: Header) -> None:
    count = 0
    for start in range(0, bits.size, CHUNK):
        signs = _bit_counts()[bits[start : start + CHUNK]]
        if signs.max() == 255:
            raise MalformedMessage("bitmap with a code that means nothing")
        count += int(signs.sum(dtype=np.int64))
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
    for start in range(0, values.size, CHUNK):
        if not np.isfinite(values[start : start + CHUNK]).all():
            raise MalformedMessage("dense payload with a number that is not finite")

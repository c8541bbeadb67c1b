"""The format of a payload: a header that describes itself, then a body of one of a few kinds.

========  ======================================================================  =========================
kind      body                                                                    element i changes by
========  ======================================================================  =========================
WORDS     ``count`` uint32: ``index << 1 | sign``; an index may come again        ±quantum per word
RICE      ``count`` words with rising indices, entropy-coded: see ``rice.py``     ±quantum per word
BITMAP    2 bits per element, 4 to a byte from the low end: 0, 1 (+), 2 (-)       0 or ±quantum
COUNTS8   one int8 per element (COUNTS16, COUNTS32 likewise)                      number x quantum
PAIRS8    ``count`` rising indices, then an int8 each (PAIRS16, 32 likewise)      number x quantum
DENSE     one float32 per element                                                 the number
others    written by compressors: see ``taut.codecs.wire.layouts``
========  ======================================================================  =========================

Indices are relative to ``base``, so a range of the vector anywhere in 2^64 elements takes 32-bit words;
indices of pairs are uint32, or uint64 where the range is longer than 2^32. All numbers are little-endian.
``validate.py`` looks at every byte before anything is applied, and allocates no more than the message's size.
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
CHUNK = 1 << 16  # elements taken at once where a kind must be widened

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
    RICE = 10
    HALVES = 11
    BRAINS = 12
    LEVELS = 13
    EIGHTHS = 14
    VOTES = 15
    COLUMNS = 16
    SPARSE = 17
    SEEDED = 18
    LOWRANK = 19
    COSINES = 20
    CHUNKED = 21


Whole = type[np.signedinteger[Any]]
COUNTS: dict[Kind, Whole] = {Kind.COUNTS8: np.int8, Kind.COUNTS16: np.int16, Kind.COUNTS32: np.int32}
QUANTA = frozenset(range(Kind.WORDS, Kind.DENSE)) | {*range(Kind.PAIRS8, Kind.RICE + 1), Kind.VOTES}  # with a quantum
PAIRS: dict[Kind, Whole] = {Kind.PAIRS8: np.int8, Kind.PAIRS16: np.int16, Kind.PAIRS32: np.int32}


@dataclass(frozen=True)
class Header:
    """The header of a payload. ``base..base+length-1`` are the elements it may touch; ``count``: entries in the
    body (words, pairs, signs of a bitmap, elements of the dense kinds modulo 2^32)."""

    kind: Kind
    quantum: float
    base: int
    length: int
    count: int

    @property
    def body_nbytes(self) -> int:
        """Return the length that the body must have, for a kind that is not written by a compressor."""
        if self.kind is Kind.WORDS:
            return 4 * self.count
        if self.kind is Kind.BITMAP:
            return (self.length + 3) // 4
        if self.kind in PAIRS:
            return self.count * (np.dtype(index_type(self.length)).itemsize + np.dtype(PAIRS[self.kind]).itemsize)
        return self.length * (4 if self.kind is Kind.DENSE else np.dtype(COUNTS[self.kind]).itemsize)


def index_type(length: int) -> type[np.unsignedinteger[Any]]:
    """Return the type of the indices of pairs in a range of ``length`` elements."""
    return np.uint32 if length <= 2**32 else np.uint64


def read_pairs(payload: Bytes, head: Header) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the indices and the numbers of a payload of pairs."""
    indices = read(payload, index_type(head.length), head.count)
    return indices, read(payload, PAIRS[head.kind], head.count, indices.nbytes)


def build(header: Header, *body: npt.NDArray[Any]) -> bytes:
    """Return the payload: the header, and the arrays of the body one after the other."""
    head = HEADER.pack(header.kind, FORMAT_VERSION, 0, header.quantum, header.base, header.length, header.count % 2**32)
    parts: list[Any] = [head, *(np.ascontiguousarray(part) for part in body)]
    return b"".join(parts)


def read(payload: Bytes, dtype: type[np.generic], count: int, offset: int = 0) -> npt.NDArray[Any]:
    """Return ``count`` numbers from the body, ``offset`` bytes into it: in place, or a copy if the address is odd."""
    found = np.frombuffer(payload, np.dtype(dtype), count, HEADER.size + offset)
    return np.require(found, requirements="A")


def body_of(payload: Bytes) -> npt.NDArray[np.uint8]:
    """Return the bytes after the header, in place."""
    return np.frombuffer(payload, np.uint8, offset=HEADER.size)


@cache
def bit_values() -> npt.NDArray[np.int8]:
    """Return a table: byte of a bitmap -> the four signs in it; 2 marks the one code that is not used."""
    codes = (np.arange(256)[:, None] >> np.array([0, 2, 4, 6])) & 3
    values: npt.NDArray[np.int8] = np.array([0, 1, -1, 2], np.int8)[codes]
    return values


def header(payload: Bytes) -> Header:
    """Return the header with its own fields checked, the body not. Raises ``MalformedMessage``."""
    if len(payload) < HEADER.size:
        raise MalformedMessage(f"payload of {len(payload)} bytes; the header alone has {HEADER.size}")
    code, version, zero, quantum, base, length, count = HEADER.unpack_from(payload)
    if version != FORMAT_VERSION or zero != 0:
        raise MalformedMessage(f"payload format {version}/{zero}; this version of taut reads {FORMAT_VERSION}/0")
    if code not in Kind._value2member_map_:
        raise MalformedMessage(f"payload of unknown kind {code}")
    kind = Kind(code)
    if kind not in QUANTA:
        if quantum != 0.0:
            raise MalformedMessage(f"{kind.name} payload with quantum {quantum}; this kind has none")
    elif not (math.isfinite(quantum) and quantum > 0.0):
        raise MalformedMessage(f"payload with quantum {quantum}; a positive number was expected")
    return Header(kind, quantum, base, length, count)

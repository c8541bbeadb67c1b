"""CHUNKED: the same number of entries in each chunk of 4096 elements, at indices of 12 bits, as one of two magnitudes.

    preamble   uint16 top (1 to 4096): entries of a whole chunk; uint16 levels (1 or 2): magnitudes of a chunk
    scales     ``levels`` float32 per chunk, not negative
    indices    12 bits each, two in three bytes, from the low end; rising within a chunk
    signs      a bit per entry, from the low end of each byte: 1 for minus
    upper      a bit per entry, 1 for the second magnitude of its chunk; only with two levels

A shorter chunk at the end of the range has its share of ``top``, rounded up. Spare bits are zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from taut.codecs.wire.layouts.base import F32, Body, SparseLayout, check_length, check_scales, largest, part
from taut.codecs.wire.payload import Header, Kind
from taut.errors import MalformedMessage

CHUNK = 4096
PREAMBLE = 4
LONGEST = 1 << 32  # elements of a range

U16 = npt.NDArray[np.uint16]


def top_of(length: int, top: int) -> int:
    """Return how many entries a chunk of ``length`` elements has, where whole ones have ``top``.

    >>> top_of(4096, 41), top_of(100, 41), top_of(1, 1)
    (41, 2, 1)
    """
    return -(-top * length // CHUNK)


def sizes_of(length: int, top: int) -> tuple[int, int]:
    """Return the chunks of a range and the entries of all of them.

    >>> sizes_of(2 * 4096 + 100, 41)
    (3, 84)
    """
    chunks, left = divmod(length, CHUNK)
    return chunks + (left > 0), chunks * top + (top_of(left, top) if left else 0)


def packed(indices: U16) -> Body:
    """Return indices below 4096 as 12 bits each.

    >>> packed(np.array([0x123, 0x456, 0x789], np.uint16)).tobytes().hex()
    '236145890700'
    """
    pairs = np.zeros((-(-len(indices) // 2), 2), np.uint16)
    pairs.reshape(-1)[: len(indices)] = indices
    made = np.empty((len(pairs), 3), np.uint8)
    made[:, 0] = pairs[:, 0] & 0xFF
    made[:, 1] = pairs[:, 0] >> 8 | (pairs[:, 1] & 0xF) << 4
    made[:, 2] = pairs[:, 1] >> 4
    return made.reshape(-1)


def unpacked(body: Body, count: int) -> U16:
    """Return the first ``count`` indices that ``packed`` wrote.

    >>> unpacked(packed(np.array([7, 4095, 0], np.uint16)), 3).tolist()
    [7, 4095, 0]
    """
    triples = body.reshape(-1, 3).astype(np.uint16)
    pairs = np.empty((len(triples), 2), np.uint16)
    pairs[:, 0] = triples[:, 0] | (triples[:, 1] & 0xF) << 8
    pairs[:, 1] = triples[:, 1] >> 4 | triples[:, 2] << 4
    return pairs.reshape(-1)[:count]


@dataclass(frozen=True)
class _Parts:
    top: int
    levels: int
    count: int
    scales: F32
    indices: Body
    bits: list[Body]  # signs, and those of the second magnitude


class ChunkedLayout(SparseLayout):
    kind: ClassVar[Kind] = Kind.CHUNKED

    def check(self, head: Header, body: Body) -> None:
        parts = _read(head, body)
        check_scales(head, parts.scales)
        spare = -parts.count % 8
        if any(spare and int(bits[-1]) >> (8 - spare) for bits in parts.bits):
            raise MalformedMessage("a CHUNKED payload with bits beyond its entries")
        padded = unpacked(parts.indices, 2 * len(parts.indices) // 3)
        if padded[parts.count :].any():
            raise MalformedMessage("a CHUNKED payload with an index beyond its entries")
        indices, left = padded[: parts.count], head.length % CHUNK
        last = top_of(left, parts.top) if left else 0
        whole = indices[: parts.count - last].reshape(-1, parts.top)
        rest = indices[parts.count - last :].reshape(-1, last or 1)
        if not all((some[:, 1:] > some[:, :-1]).all() for some in (whole, rest)):
            raise MalformedMessage("a CHUNKED payload whose indices do not rise")
        if last and int(indices[-1]) >= left:
            raise MalformedMessage(f"an entry for element {int(indices[-1])} of a chunk of {left}")

    def reach(self, head: Header, body: Body) -> float:
        return largest(_read(head, body).scales)

    def entries(self, head: Header, body: Body) -> tuple[npt.NDArray[Any], F32]:
        parts = _read(head, body)
        chunk = np.repeat(np.arange(len(parts.scales) // parts.levels), parts.top)[: parts.count]
        signs, *upper = (np.unpackbits(bits, count=parts.count, bitorder="little") for bits in parts.bits)
        values = parts.scales[parts.levels * chunk + (upper[0] if upper else 0)]
        return CHUNK * chunk + unpacked(parts.indices, parts.count), np.where(signs, -values, values)


def _read(head: Header, body: Body) -> _Parts:
    """Return the parts of a body whose lengths are right; scales and bits are not checked."""
    top, levels = (int(number) for number in part(body, np.uint16, 0, 2))
    if not 1 <= top <= CHUNK or levels not in (1, 2) or head.length > LONGEST:
        raise MalformedMessage(f"a CHUNKED payload of {top} entries a chunk, of {levels} magnitudes")
    chunks, count = sizes_of(head.length, top)
    if head.count != count:
        raise MalformedMessage(f"a CHUNKED payload of {count} entries that counts {head.count}")
    scales = PREAMBLE + 4 * levels * chunks
    indices, bits = scales + 3 * (-(-count // 2)), -(-count // 8)
    check_length(head, body, indices + levels * bits)
    each = [body[indices + n * bits : indices + (n + 1) * bits] for n in range(levels)]
    return _Parts(top, levels, count, part(body, np.float32, PREAMBLE, levels * chunks), body[scales:indices], each)

"""VOTES: one bit per element, 1 for minus, from the low end of each byte; the spare bits of the last byte are zero.

Element i changes by ±quantum, which is the header's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from taut.codecs.kernels import cpu
from taut.codecs.parallel import run_chunks
from taut.codecs.wire.layouts.base import F32, Body, DenseLayout, check_length
from taut.codecs.wire.payload import CHUNK, Header, Kind
from taut.errors import MalformedMessage


def minus_bits(v: F32) -> Body:
    """Return a bit per element: 1 where it is below zero. Chunk by chunk, which stays in the cache.

    >>> minus_bits(np.array([1.0, -2.0, -0.0, -1.0], np.float32)).tolist()
    [10]
    """
    bits = np.empty(-(-len(v) // 8), np.uint8)

    def write(start: int, stop: int) -> None:
        bits[start // 8 : -(-stop // 8)] = np.packbits(v[start:stop] < 0, bitorder="little")

    run_chunks(write, 0, len(v), CHUNK)
    return bits


def check_spare(head: Header, bits: Body) -> None:
    """Raise ``MalformedMessage`` if a bit is set beyond the range."""
    spare = -head.length % 8
    if spare and int(bits[-1]) >> (8 - spare):
        raise MalformedMessage(f"a {head.kind.name} payload with bits beyond its range")


class SignBitsLayout(DenseLayout):
    kind: ClassVar[Kind] = Kind.VOTES

    def check(self, head: Header, body: Body) -> None:
        check_length(head, body, -(-head.length // 8))
        check_spare(head, body)

    def reach(self, head: Header, body: Body) -> float:
        return head.quantum

    def pieces(self, head: Header, body: Body, lo: int, hi: int) -> Iterator[tuple[int, F32]]:
        above, below = np.array([[head.quantum], [-head.quantum]], np.float32)
        for start in range(lo, hi, CHUNK):
            stop = min(start + CHUNK, head.length)
            yield start, cpu.signs.choose(body, start, stop - start, (0, CHUNK), above, below)

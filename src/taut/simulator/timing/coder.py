"""A codec of vectors where only sizes and durations count: every payload is as long as every other, and says nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taut.codecs.host_vectors import HostVectors
from taut.strategies.allreduce.compressed_group import pays
from taut.strategies.delivery.copies import PLAIN_BITS

if TYPE_CHECKING:
    from taut.strategies.api import Method, Vector

CODED_NBYTES = 64  # of the stand-in for what a codec writes


@dataclass(frozen=True)
class StandInCoder(HostVectors):
    """In the place of ``taut.codecs.vector_codec.Coder``. ``bits``: as the codec states them, for the method's decisions.

    >>> coder = StandInCoder("topk", bits=0.64, workers=4)
    >>> len(coder.encode(None)), coder.encode(None, weight=0.0)
    (64, b'')
    """

    name: str
    bits: float
    workers: int
    damping: float = 1.0
    pace: float = 1.0
    bounded: bool = True

    def encode(self, v: Vector, weight: float = 1.0, tail: bytes = b"") -> bytes:
        return bytes(CODED_NBYTES if weight else 0) + tail

    def fade(self, share: float) -> None:
        pass

    def difference(self, v: Vector) -> bytes:
        return bytes(CODED_NBYTES)

    def part(self, lo: int, hi: int) -> StandInCoder:
        return self

    def check(self, payload: bytes | memoryview, size: int) -> None:
        pass

    def add(self, payload: bytes | memoryview, x: Vector, scale: float = 1.0) -> None:
        pass

    def total(self, payloads: Sequence[bytes | memoryview], weights: Sequence[float], out: Vector) -> None:
        out[:] = 0.0


def coder_for(method: Method, codec: str, workers: int) -> StandInCoder | None:
    """Return what ``method`` compresses vectors with; None where it does not, or where a ring of float32 is less.

    >>> from taut.strategies.allreduce.sync import Sync
    >>> coder_for(Sync(), "topk", 4) is None, coder_for(Sync(), "int8", 8) is None
    (False, True)
    """
    name = codec.partition(":")[0].strip()
    if not method.info.coded_kinds or name == "dense":
        return None
    from taut.codecs import parse

    bits = parse(codec).facts.bits
    if bits >= PLAIN_BITS and method.codecs[0] == "dense":
        return None  # the run is as with none
    sums = bool(method.summed_numbers)  # in a ring, unless what the codec writes is less
    return None if sums and not pays(bits, workers) else StandInCoder(name, bits, workers)

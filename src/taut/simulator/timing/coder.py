"""A codec of vectors where only sizes and durations count: every payload is as long as every other, and says nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taut.strategies.allreduce.compressed_group import pays
from taut.strategies.allreduce.sync import Sync

if TYPE_CHECKING:
    from taut.strategies.api import Method, Vector

CODED_NBYTES = 64  # of the stand-in for what a codec writes


@dataclass(frozen=True)
class StandInCoder:
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

    def encode(self, v: Vector, weight: float = 1.0) -> bytes:
        return bytes(CODED_NBYTES) if weight else b""

    def difference(self, v: Vector) -> bytes:
        return bytes(CODED_NBYTES)

    def check(self, payload: bytes | memoryview, size: int) -> None:
        pass

    def add(self, payload: bytes | memoryview, x: Vector, scale: float = 1.0) -> None:
        pass

    def total(self, payloads: Sequence[bytes | memoryview], weights: Sequence[float], out: Vector) -> None:
        out[:] = 0.0


def coder_for(method: Method, codec: str, workers: int) -> StandInCoder | None:
    """Return what ``method`` compresses vectors with; None where it does not, or where a ring of float32 is less.

    >>> coder_for(Sync(), "topk", 4) is None, coder_for(Sync(), "int8", 8) is None
    (False, True)
    """
    name = codec.partition(":")[0].strip()
    if not method.info.coded_kind or name == "dense":
        return None
    from taut.codecs import parse

    bits = parse(codec).facts.bits
    return None if isinstance(method, Sync) and not pays(bits, workers) else StandInCoder(name, bits, workers)

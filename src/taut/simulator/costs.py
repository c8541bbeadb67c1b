"""What exchanging costs a worker's training thread, in seconds of CPU. Nothing here is about the network.

The defaults were measured by ``bench/costs.py`` on one core of an AMD EPYC, as CPU time of one thread: codecs on 10
million elements of which 1.2% are sent, messages through ``worker.courier`` and the ZeroMQ transport on the loopback
device. A probe of the user's own machines replaces them. Encryption and TCP are the work of other threads and of the
kernel, and are not in these figures.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from taut.errors import Misuse, StorageFailed
from taut.simulator.records import fields_of, table
from taut.written import did_you_mean

BITS_PER_WORD = 32  # of a sparse payload: an element's place and its sign
BITS_IN_BITMAP = 2.0  # per element, where more than one in 16 is sent


def _check(record: Any, what: str) -> None:
    for each in fields(record):
        value = getattr(record, each.name)
        if isinstance(value, Mapping):
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < math.inf:
            raise Misuse(f"{what} with {each.name} = {value!r}", "a number from 0 up")


@dataclass(frozen=True)
class CodecCost:
    """One update of n elements is ``n * bits_per_element / 8`` bytes. Making it takes ``fixed_s + n *
    encode_s_per_element``, including it ``bytes * absorb_s_per_byte``.

    >>> CodecCost(1e-9, 4e-9, 0.384, 2e-5).nbytes(1_000_000)
    48000
    """

    encode_s_per_element: float
    absorb_s_per_byte: float
    bits_per_element: float
    fixed_s: float = 0.0

    def __post_init__(self) -> None:
        _check(self, "a codec's cost")

    def nbytes(self, elements: int) -> int:
        """Of one update of so many elements."""
        return math.ceil(elements * self.bits_per_element / 8)

    def encode_s(self, elements: int) -> float:
        return self.fixed_s + elements * self.encode_s_per_element

    def absorb_s(self, nbytes: int) -> float:
        return nbytes * self.absorb_s_per_byte


MEASURED: Mapping[str, CodecCost] = {
    "tether": CodecCost(0.88e-9, 3.9e-9, 0.384, 7.0e-6),
    "threshold": CodecCost(0.91e-9, 4.2e-9, 0.384, 6.6e-6),
    "dense": CodecCost(4.4e-9, 0.42e-9, 32.0, 9.2e-6),
}


@dataclass(frozen=True)
class Costs:
    """``message_s``: per message, at each of its two ends, whatever its length. ``send_s_per_byte``,
    ``receive_s_per_byte``: of the thread that hands it to the transport or takes it from there. ``copy_s_per_byte``: per
    byte of a vector that is copied in memory.

    ``bits_per_element`` of the sparse codecs is that of 1.2% of the elements per exchange, which they aim at where
    nothing else is set. Real runs were on both sides of it: tether sent 0.16 bits (MNIST) and 0.64 bits (a
    character transformer).

    >>> Costs().codec("threshold:density=0.001").bits_per_element
    0.032
    """

    codecs: Mapping[str, CodecCost] = field(default_factory=lambda: dict(MEASURED))
    message_s: float = 26e-6
    send_s_per_byte: float = 0.105e-9
    receive_s_per_byte: float = 0.107e-9
    copy_s_per_byte: float = 0.075e-9

    def __post_init__(self) -> None:
        _check(self, "costs")

    def codec(self, name: str) -> CodecCost:
        """Of a codec as it is written; a ``density=`` there decides the bits."""
        base, _, settings = name.partition(":")
        cost = self.codecs.get(base)
        if cost is None:
            remedy = did_you_mean(base, self.codecs, "add it to the costs")
            raise Misuse(f"the cost of codec {name!r}", f"one of {', '.join(self.codecs)}", remedy)
        for setting in settings.split(","):
            key, _, value = setting.partition("=")
            if key.strip() == "density":
                bits = min(BITS_IN_BITMAP, BITS_PER_WORD * _number(value, f"codec {name!r}"))
                cost = replace(cost, bits_per_element=bits)
        return cost

    def to_record(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: object) -> Costs:
        """Inverse of ``to_record``; what is left out is as it was measured here, codecs all or none.

        >>> Costs.from_record(Costs(message_s=1e-5).to_record()) == Costs(message_s=1e-5)
        True
        """
        return cls(**fields_of(cls, record, "costs", codecs=_codec_costs))

    def write(self, path: str | os.PathLike[str]) -> None:
        """As JSON. All of it or, if the disk is full, nothing."""
        final = Path(path)
        temporary = final.with_name(f".{final.name}.{os.getpid()}.tmp")
        try:
            temporary.write_text(json.dumps(self.to_record(), indent=2) + "\n", encoding="utf-8")
            os.replace(temporary, final)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise StorageFailed(f"the costs {final} could not be written: {error.strerror}") from error

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Costs:
        """What ``write`` wrote."""
        try:
            return cls.from_record(json.loads(Path(path).read_text(encoding="utf-8")))
        except OSError as error:
            raise Misuse(f"costs {path} ({error.strerror})", "a JSON file of costs") from None
        except ValueError as error:
            if isinstance(error, Misuse):
                raise
            raise Misuse(f"costs {path} ({error})", "a JSON file of costs") from None


def _codec_costs(record: object) -> dict[str, CodecCost]:
    read: dict[str, CodecCost] = {}
    for name, each in table(record, "costs of codecs").items():
        found = fields_of(CodecCost, each, f"costs of codec {name!r}")
        missing = [field.name for field in fields(CodecCost) if field.default is MISSING and field.name not in found]
        if missing:
            raise Misuse(f"costs of codec {name!r} without {', '.join(missing)}", "all three of its rates")
        read[str(name)] = CodecCost(**found)
    return read


def _number(text: str, blame: str) -> float:
    from taut.codecs.settings import number

    return number(text, f"{blame}: density")

"""What exchanging costs a worker's training thread, in seconds of CPU. The network is not part of it.

The defaults were measured by ``bench/costs.py`` on one core of an AMD EPYC, as CPU time of one thread: codecs on made-up
updates of 4 million elements, messages through ``worker.comm.dispatcher`` and the ZeroMQ transport on the loopback
device. The figures of ``taut codecs --measure`` on the user's machine replace those of the codecs (``cost_file.py``), and
a probe of the user's script those of the codecs that it watches. Encryption and TCP are the work of other threads and of
the kernel, and are not in these figures.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from taut.errors import Misuse, StorageFailed
from taut.simulator.json_tables import fields_of, table
from taut.specs import did_you_mean

ORIGIN = "measured"  # key of a file: where and when; no part of the costs


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
        """Return the bytes of one update of ``elements``."""
        return math.ceil(elements * self.bits_per_element / 8)

    def encode_s(self, elements: int) -> float:
        return self.fixed_s + elements * self.encode_s_per_element

    def absorb_s(self, nbytes: int) -> float:
        return nbytes * self.absorb_s_per_byte


MEASURED: Mapping[str, CodecCost] = {
    "tether": CodecCost(0.493e-9, 14.2e-9, 0.1058, 16.8e-6),
    "threshold": CodecCost(0.762e-9, 20.0e-9, 0.1058, 13.2e-6),
    "dense": CodecCost(3.99e-9, 0.411e-9, 32.0, 8.67e-6),
    "fp16": CodecCost(7.41e-9, 0.731e-9, 16.0, 38.2e-6),
    "bf16": CodecCost(5.26e-9, 0.576e-9, 16.0, 20.5e-6),
    "int8": CodecCost(1.96e-9, 0.865e-9, 8.125, 27.0e-6),
    "fp8": CodecCost(2.14e-9, 1.23e-9, 8.25, 22.9e-6),
    "qsgd": CodecCost(2.59e-9, 1.9e-9, 4.062, 44.8e-6),
    "terngrad": CodecCost(2.79e-9, 3.53e-9, 2.008, 50.9e-6),
    "topk": CodecCost(1.78e-9, 4.03e-9, 0.64, 62.8e-6),
    "dgc": CodecCost(2.23e-9, 10.2e-9, 0.064, 79.3e-6),
    "randomk": CodecCost(1.3e-9, 9.98e-9, 0.32, 49.6e-6),
    "sign": CodecCost(2.13e-9, 6.1e-9, 1.0, 25.5e-6),
    "onebit": CodecCost(2.22e-9, 5.8e-9, 1.125, 38.6e-6),
    "powersgd": CodecCost(1.95e-9, 21.2e-9, 0.3116, 84.5e-6),
    "demo": CodecCost(6.64e-9, 56.1e-9, 0.3744, 33.7e-6),
}


@dataclass(frozen=True)
class Costs:
    """``message_s``: per message, at each of its two ends, whatever its length. ``send_s_per_byte``,
    ``receive_s_per_byte``: of the thread that hands it to the transport or takes it from there. ``copy_s_per_byte``: per
    byte of a vector that is copied in memory.

    ``bits_per_element`` of tether and threshold is that of 1.2% of the elements per exchange, which they aim at where
    nothing else is set. Real runs were on both sides of it.

    >>> round(Costs().codec("topk:density=0.001").bits_per_element, 3), Costs().codec("dense").nbytes(1000)
    (0.064, 4000)
    """

    codecs: Mapping[str, CodecCost] = field(default_factory=lambda: dict(MEASURED))
    message_s: float = 26e-6
    send_s_per_byte: float = 0.113e-9
    receive_s_per_byte: float = 0.109e-9
    copy_s_per_byte: float = 0.070e-9

    def __post_init__(self) -> None:
        _check(self, "costs")

    def codec(self, given: str) -> CodecCost:
        """Return the cost of a codec as it is written. If its settings change the bits that it states, the bits of the
        cost change in proportion; for codecs of signs, which settings steer, they are the stated bits. A codec that was
        not measured has the cost of taut's own figures."""
        name = given.partition(":")[0].strip()
        cost = self.codecs.get(name) or MEASURED.get(name)
        if cost is None:
            remedy = did_you_mean(name, self.codecs, "add it to the costs")
            raise Misuse(f"the cost of codec {given!r}", f"one of {', '.join(self.codecs)}", remedy)
        if ":" not in given:
            return cost
        from taut.codecs import parse

        codec, stated = parse(given), parse(name).facts.bits
        bits = codec.facts.bits
        if bits == stated:
            return cost
        return replace(cost, bits_per_element=bits if codec.exact else cost.bits_per_element * bits / stated)

    def to_record(self) -> dict[str, Any]:
        """Return the costs as plain JSON."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: object) -> Costs:
        """Return the costs that ``to_record`` wrote; what is left out has the default, codecs all or none.

        >>> Costs.from_record(Costs(message_s=1e-5).to_record()) == Costs(message_s=1e-5)
        True
        """
        return cls(**fields_of(cls, record, "costs", codecs=_codec_costs))

    def write(self, path: str | os.PathLike[str], origin: Mapping[str, Any] | None = None) -> None:
        """Write the costs as JSON: all of it or, if the disk is full, nothing. ``origin``: where and when they were
        measured."""
        final = Path(path)
        temporary = final.with_name(f".{final.name}.{os.getpid()}.tmp")
        record = {**({ORIGIN: dict(origin)} if origin else {}), **self.to_record()}
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
            os.replace(temporary, final)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise StorageFailed(f"the costs {final} could not be written: {error.strerror}") from error

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Costs:
        """Read what ``write`` wrote."""
        try:
            record = json.loads(Path(path).read_text(encoding="utf-8"))
            return cls.from_record(without_origin(record))
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


def without_origin(record: object) -> object:
    """Return the record of a file without where and when it was measured."""
    return {key: value for key, value in record.items() if key != ORIGIN} if isinstance(record, dict) else record

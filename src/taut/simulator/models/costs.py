"""What exchanging costs a worker's training thread, in seconds of CPU. The network is not part of it.

The defaults were measured by ``bench/costs.py`` on one core of an AMD EPYC, as CPU time of one thread: codecs on made-up
updates of 4 million elements, messages through ``worker.comm.dispatcher`` and the ZeroMQ transport on the loopback
device. The figures of ``taut codecs --measure`` on the user's machine replace those of the codecs (``cost_file.py``), and
a probe of the user's script those of the codecs that it watches. Encryption and TCP are the work of other threads and of
the kernel, and are not in these figures.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from taut.codecs.info import CodecCost, check_costs
from taut.core.files import write_atomically
from taut.errors import Misuse, StorageFailed
from taut.plugins import CODECS
from taut.simulator.json_tables import read_record, table

__all__ = ["ORIGIN", "CodecCost", "Costs", "measured"]
ORIGIN = "measured"  # key of a file: where and when; no part of the costs


@cache
def measured() -> Mapping[str, CodecCost]:
    """Return what taut's own codecs cost, as each says of itself."""
    from taut.codecs import parse

    found = {name: parse(name).facts.cost for name in CODECS.own}
    return {name: cost for name, cost in found.items() if cost is not None}


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

    codecs: Mapping[str, CodecCost] = field(default_factory=lambda: dict(measured()))
    message_s: float = 26e-6
    send_s_per_byte: float = 0.113e-9
    receive_s_per_byte: float = 0.109e-9
    copy_s_per_byte: float = 0.070e-9

    def __post_init__(self) -> None:
        check_costs(self, "costs")

    def codec(self, given: str) -> CodecCost:
        """Return the cost of a codec as it is written. If its settings change the bits that it states, the bits of the
        cost change in proportion; for codecs of signs, which settings steer, they are the stated bits. A codec that was
        not measured here has the cost that it states; if it states none, that of ``dense`` per element and per byte."""
        from taut.codecs import parse

        name, colon, _ = given.partition(":")
        cost = self.codecs.get(name.strip())
        if cost is not None and not colon:
            return cost
        plain = parse(name).facts
        cost = cost or plain.cost or replace(self.codec("dense"), bits_per_element=plain.bits)
        if not colon:
            return cost
        codec, stated = parse(given), plain.bits
        bits = codec.facts.bits
        if bits == stated:
            return cost
        return replace(cost, bits_per_element=bits if codec.exact else cost.bits_per_element * bits / stated)

    @classmethod
    def from_record(cls, record: object) -> Costs:
        """Return the costs that ``asdict`` gives, from plain JSON; what is left out has the default, codecs all or none.

        >>> Costs.from_record(asdict(Costs(message_s=1e-5))) == Costs(message_s=1e-5)
        True
        """
        return read_record(cls, record, "costs", codecs=_codec_costs)

    def write(self, path: str | os.PathLike[str], origin: Mapping[str, Any] | None = None) -> None:
        """Write the costs as JSON: all of it or, if the disk is full, nothing. ``origin``: where and when."""
        final = Path(path)
        record = {**({ORIGIN: dict(origin)} if origin else {}), **asdict(self)}
        try:
            final.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(final, json.dumps(record, indent=2).encode() + b"\n")
        except OSError as error:
            raise StorageFailed(f"the costs {final} could not be written: {error.strerror}") from error

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> tuple[Costs, Mapping[str, Any]]:
        """Read what ``write`` wrote: the costs, and their origin."""
        try:
            record = dict(table(json.loads(Path(path).read_text(encoding="utf-8")), "costs"))
            origin = table(record.pop(ORIGIN, {}), f"{path}: {ORIGIN}")
            return cls.from_record(record), origin
        except Misuse:
            raise
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise Misuse(f"costs {path} ({why})", "a JSON file of costs") from None


def _codec_costs(record: object) -> dict[str, CodecCost]:
    given = table(record, "costs of codecs")
    return {str(name): read_record(CodecCost, each, f"costs of codec {name!r}") for name, each in given.items()}

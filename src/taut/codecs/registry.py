"""The known codecs by name, and their written form: ``tether:slack=2^-6``, ``topk:density=0.001,feedback=no``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_type_hints

from taut.codecs.algorithms.bf16 import Bf16
from taut.codecs.algorithms.demo import DeMo
from taut.codecs.algorithms.dense import Dense
from taut.codecs.algorithms.dgc import DGC
from taut.codecs.algorithms.fp8 import Fp8
from taut.codecs.algorithms.fp16 import Fp16
from taut.codecs.algorithms.int8 import Int8
from taut.codecs.algorithms.onebit import OneBit
from taut.codecs.algorithms.powersgd import PowerSGD
from taut.codecs.algorithms.qsgd import QSGD
from taut.codecs.algorithms.randomk import RandomK
from taut.codecs.algorithms.sign import Sign
from taut.codecs.algorithms.terngrad import TernGrad
from taut.codecs.algorithms.tether import Tether
from taut.codecs.algorithms.threshold import Threshold
from taut.codecs.algorithms.topk import TopK
from taut.codecs.codec import Codec
from taut.codecs.compressor import Compressor
from taut.codecs.error_feedback import Feedback
from taut.codecs.params import number, truth, whole, written
from taut.errors import Misuse
from taut.specs import did_you_mean, named, pairs

CODECS: tuple[type[Codec], ...] = (Tether, Threshold, Dense)
COMPRESSORS: tuple[type[Compressor], ...] = (
    Fp16,
    Bf16,
    Int8,
    Fp8,
    QSGD,
    TernGrad,
    TopK,
    DGC,
    RandomK,
    Sign,
    OneBit,
    PowerSGD,
    DeMo,
)
REGISTRY: dict[str, type[Codec] | type[Compressor]] = {
    **{kind.name: kind for kind in CODECS},
    **{kind.name: kind for kind in COMPRESSORS},
}
SKETCH_KERNEL = "kernels.add_to_sketch"  # every worker's heartbeat has a sketch of its weights
FEEDBACK = "feedback"  # a setting of every compressor: yes unless it says otherwise
_READERS: dict[type, Callable[[object, str], Any]] = {bool: truth, int: whole}


def parse(given: str | Mapping[str, Any] | Codec | Compressor) -> Codec:
    """The codec that was written down, as ``name``, ``name:key=value,key=value`` or a table with ``name``; or a codec
    or a compressor itself.

    >>> parse("threshold:tau=2^-8") == parse({"name": "threshold", "tau": 0.00390625})
    True
    >>> parse("topk:density=0.001") == parse(TopK(0.001)) == Feedback(TopK(0.001))
    True
    """
    if isinstance(given, Codec):
        return given
    if isinstance(given, Compressor):
        return Feedback(given, given.feeds_back)
    name, rest, settings = named(given, "codec", "tether:density=0.01", '{ name = "tether", density = 0.01 }')
    settings |= pairs(rest, f"codec {given!r}", "tether:density=0.01")
    if name not in REGISTRY:
        remedy = did_you_mean(name, REGISTRY, "as in --codec tether:density=0.01")
        raise Misuse(f"codec {name!r}", f"one of {', '.join(REGISTRY)}", remedy)
    kind = REGISTRY[name]
    if issubclass(kind, Codec):
        return kind(**_values(kind, settings))
    keep = truth(settings.pop(FEEDBACK, kind.feeds_back), f"{name}: {FEEDBACK}")
    return Feedback(kind(**_values(kind, settings)), keep)


def _values(kind: type[Codec] | type[Compressor], settings: Mapping[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind)
    known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    takes = known + ([FEEDBACK] if issubclass(kind, Compressor) else [])
    values: dict[str, Any] = {}
    for key, value in settings.items():
        if key not in known:
            raise Misuse(f"codec {kind.name} with {key!r}", ", ".join(takes) or "no parameters", did_you_mean(key, takes))
        values[key] = _READERS.get(hints[key], number)(value, f"{kind.name}: {key}")
    return values


def kernels_of(codecs: Iterable[str]) -> list[str]:
    """Return the names of the kernels that a worker with these codecs needs for a model on the CPU, each once.

    >>> kernels_of([]), len(kernels_of(["tether", "tether:density=0.01"]))
    (['kernels.add_to_sketch'], 8)
    """
    return list(dict.fromkeys([SKETCH_KERNEL, *(name for codec in codecs for name in parse(codec).kernels)]))


def compiling_text(done: int, wanted: int) -> str:
    """Say how far compiling is.

    >>> compiling_text(4, 9)
    'compiling kernels, once per machine: 4 of 9'
    """
    return f"compiling kernels, once per machine: {done} of {wanted}"


def spec(codec: Codec) -> str:
    """The written form, which ``parse`` reads back to an equal codec.

    >>> spec(Tether(slack=2**-6)), spec(Dense()), spec(Feedback(TopK(0.01), keep=False))
    ('tether:slack=2^-6', 'dense', 'topk:density=0.01,feedback=no')
    """
    record: Any = codec.compressor if isinstance(codec, Feedback) else codec
    given = [
        f"{field.name}={written(getattr(record, field.name))}"
        for field in dataclasses.fields(record)
        if getattr(record, field.name) is not None
    ]
    if isinstance(codec, Feedback) and codec.keep != codec.compressor.feeds_back:
        given.append(f"{FEEDBACK}={written(codec.keep)}")
    return codec.name + (":" + ",".join(given) if given else "")

"""The known codecs by name, and their written form: ``tether:slack=2^-6``, ``topk:density=0.001,feedback=no``."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from taut.codecs.codec import Codec
from taut.codecs.compressor import Compressor
from taut.codecs.error_feedback import Feedback
from taut.codecs.params import written
from taut.plugins import CODECS, Registry
from taut.specs import parse_spec, settings_of

REGISTRY: Registry[type[Codec] | type[Compressor]] = CODECS
SKETCH_KERNEL = "kernels.add_to_sketch"  # every worker's heartbeat has a sketch of its weights
FEEDBACK = "feedback"  # a setting of every compressor: yes unless it says otherwise


def parse(given: str | Mapping[str, Any] | Codec | Compressor) -> Codec:
    """Read a codec: ``name``, ``name:key=value,key=value`` or a table with ``name``; or a codec or a compressor itself.

    >>> parse("threshold:tau=2^-8") == parse({"name": "threshold", "tau": 0.00390625})
    True
    >>> from taut.codecs import TopK
    >>> parse("topk:density=0.001") == parse(TopK(0.001)) == Feedback(TopK(0.001))
    True
    """
    if isinstance(given, Codec):
        return given
    if isinstance(given, Compressor):
        return Feedback(given, given.feeds_back)
    name, values = parse_spec(given, CODECS, "tether:density=0.01", fields_of=_settings)
    kind = REGISTRY[name]
    if issubclass(kind, Codec):
        return kind(**values)
    keep = values.pop(FEEDBACK, kind.feeds_back)
    return Feedback(kind(**values), keep)


def _settings(kind: type[Any]) -> dict[str, Any]:
    return settings_of(kind) | ({FEEDBACK: "bool"} if issubclass(kind, Compressor) else {})


def kernels_of(codecs: Iterable[str]) -> list[str]:
    """Return the names of the kernels that a worker with these codecs needs for a model on the CPU, each once.

    >>> kernels_of([]), len(kernels_of(["tether", "tether:density=0.01"]))
    ([], 8)
    """
    names = [name for codec in codecs for name in parse(codec).kernels]
    return list(dict.fromkeys([SKETCH_KERNEL, *names])) if names else []


def compiling_text(done: int, wanted: int) -> str:
    """Return a line that says how far compiling is.

    >>> compiling_text(4, 9)
    'compiling kernels, once per machine: 4 of 9'
    """
    return f"compiling kernels, once per machine: {done} of {wanted}"


def spec(codec: Codec) -> str:
    """Return the written form, which ``parse`` reads back to an equal codec.

    >>> from taut.codecs import Dense, Tether, TopK
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

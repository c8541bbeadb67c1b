"""The known codecs by name, and their written form: ``tether:slack=2^-6``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from taut.codecs.codec import Codec
from taut.codecs.dense import Dense
from taut.codecs.settings import number, written
from taut.codecs.tether import Tether
from taut.codecs.threshold import Threshold
from taut.errors import Misuse
from taut.written import did_you_mean, named, pairs

REGISTRY: dict[str, type[Codec]] = {codec.name: codec for codec in (Tether, Threshold, Dense)}


def parse(given: str | Mapping[str, Any]) -> Codec:
    """The codec that was written down, as ``name``, ``name:key=value,key=value`` or a table with ``name``.

    >>> parse("threshold:tau=2^-8") == parse({"name": "threshold", "tau": 0.00390625})
    True
    """
    name, rest, settings = named(given, "codec", "tether:density=0.01", '{ name = "tether", density = 0.01 }')
    settings |= pairs(rest, f"codec {given!r}", "tether:density=0.01")
    if name not in REGISTRY:
        remedy = did_you_mean(name, REGISTRY, "as in --codec tether:density=0.01")
        raise Misuse(f"codec {name!r}", f"one of {', '.join(REGISTRY)}", remedy)
    known = [field.name for field in dataclasses.fields(REGISTRY[name])]  # type: ignore[arg-type]
    values: dict[str, float] = {}
    for key, value in settings.items():
        if key not in known:
            remedy = did_you_mean(key, known)
            raise Misuse(f"codec {name} with {key!r}", f"{', '.join(known) or 'no parameters'}", remedy)
        values[key] = number(value, f"{name}: {key}")
    return REGISTRY[name](**values)


def spec(codec: Codec) -> str:
    """The written form, which ``parse`` reads back to an equal codec.

    >>> spec(Tether(slack=2**-6)), spec(Dense())
    ('tether:slack=2^-6', 'dense')
    """
    given = [
        f"{field.name}={written(getattr(codec, field.name))}"
        for field in dataclasses.fields(codec)  # type: ignore[arg-type]
        if getattr(codec, field.name) is not None
    ]
    return codec.name + (":" + ",".join(given) if given else "")

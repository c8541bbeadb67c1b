"""The known codecs by name, and their written form: ``tether:slack=2^-6``."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from taut.codecs.codec import Codec
from taut.codecs.dense import Dense
from taut.codecs.settings import number, written
from taut.codecs.tether import Tether
from taut.codecs.threshold import Threshold
from taut.errors import Misuse

REGISTRY: dict[str, type[Codec]] = {codec.name: codec for codec in (Tether, Threshold, Dense)}


def parse(given: str | Mapping[str, Any]) -> Codec:
    """The codec that was written down, as ``name``, ``name:key=value,key=value`` or a table with ``name``.

    >>> parse("threshold:tau=2^-8") == parse({"name": "threshold", "tau": 0.00390625})
    True
    """
    name, settings = _split(given)
    if name not in REGISTRY:
        close = difflib.get_close_matches(name, REGISTRY, n=1)
        raise Misuse(
            f"codec {name!r}",
            f"one of {', '.join(REGISTRY)}",
            f"did you mean {close[0]!r}?" if close else "as in --codec tether:density=0.01",
        )
    known = [field.name for field in dataclasses.fields(REGISTRY[name])]  # type: ignore[arg-type]
    values: dict[str, float] = {}
    for key, value in settings.items():
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else ""
            raise Misuse(f"codec {name} with {key!r}", f"{', '.join(known) or 'no parameters'}", hint)
        values[key] = number(value, f"{name}: {key}")
    return REGISTRY[name](**values)


def _split(given: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    if isinstance(given, Mapping):
        if not isinstance(given.get("name"), str):
            raise Misuse(f"codec {dict(given)}", 'a table with a name, such as { name = "tether", density = 0.01 }')
        return given["name"], {key: value for key, value in given.items() if key != "name"}
    if not isinstance(given, str):
        raise Misuse(f"codec {given!r}", "a string such as 'tether:density=0.01', or a table")
    name, _, rest = given.partition(":")
    settings: dict[str, Any] = {}
    for part in rest.split(",") if rest.strip() else []:
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise Misuse(f"codec {given!r}", "name:key=value,key=value", "as in tether:density=0.01")
        if key.strip() in settings:
            raise Misuse(f"codec {given!r}", f"{key.strip()} once")
        settings[key.strip()] = value.strip()
    return name.strip(), settings


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

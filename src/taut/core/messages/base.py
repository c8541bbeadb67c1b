"""Base of all messages: field types with bounds that are checked while decoding, and the root class.

Every number has a least and a greatest value (so that NaN and infinity are refused, too), every text and every list a
greatest length. ``tests/core/test_messages.py`` holds this for all messages.
"""

from __future__ import annotations

import functools
import re
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.inspect import FloatType, StrType

PROTOCOL_VERSION = 11
SUPERVISOR = -1  # the supervisor's number among the ranks
MAX_WORKERS = 65_536
FLOAT32_MAX = 3.4028234663852886e38  # squares, and sums over a message, are finite float64
_UNPRINTABLE = r"\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"  # controls, line ends, changes of direction

_CONTROLS = re.compile(f"(?![\n\t])[{_UNPRINTABLE}]")

Count = Annotated[int, Meta(ge=0, le=2**62)]
Rank = Annotated[int, Meta(ge=0, le=2**31 - 1)]  # given by the supervisor, never used twice in a run
Real = Annotated[float, Meta(ge=-FLOAT32_MAX, le=FLOAT32_MAX)]
Amount = Annotated[float, Meta(ge=0.0, le=1e18)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e11)]
Text = Annotated[str, Meta(max_length=4096)]  # for people to read, see ``Tidy``
PRINTABLE = rf"\A[^{_UNPRINTABLE}]*\Z"
Name = Annotated[str, Meta(max_length=512, pattern=PRINTABLE)]
Word = Annotated[str, Meta(max_length=128, pattern=r"\A[!-~]*\Z")]  # a hash, a type, a kind
PublicKey = Annotated[str, Meta(max_length=40, pattern=r"\A([0-9a-zA-Z.:+=^!/*?&<>()\[\]{}@%$#-]{40})?\Z")]


class Message(Struct, frozen=True, tag=True, array_like=True):
    """Root of all messages."""


class Tidy(Struct, frozen=True, array_like=True):
    """A record that fits its own bounds: it shortens its texts, replaces unprintable characters in them, and replaces
    numbers that are out of bounds by the default. Of a decoded record only texts can change.

    >>> from taut.core.messages import Failed, Statistics
    >>> Failed("\\x1b[2Jgone").reason, Statistics(loss=float("nan")).loss
    ('\ufffd[2Jgone', None)
    """

    def __post_init__(self) -> None:
        for name, least, most, default in _tidied(type(self)):
            value = getattr(self, name)
            if isinstance(value, str):
                if len(value) > most or not value.isprintable():
                    msgspec.structs.force_setattr(self, name, _CONTROLS.sub("\ufffd", value[: int(most)]))
            elif isinstance(value, list):
                if not all(least <= number <= most for number in value):
                    msgspec.structs.force_setattr(self, name, default)
            elif value and not least <= value <= most:
                msgspec.structs.force_setattr(self, name, default)


@functools.cache
def _tidied(kind: type[Struct]) -> tuple[tuple[str, float, float, object], ...]:
    """Return the fields that ``Tidy`` looks at: the name, the bounds (of a text's length), the default."""
    found: list[tuple[str, float, float, object]] = []
    for field in msgspec.inspect.type_info(kind).fields:  # type: ignore[attr-defined]  # it is a struct
        for each in getattr(field.type, "types", [field.type]):
            number = getattr(each, "item_type", each)
            if isinstance(each, StrType) and each.pattern is None:
                found.append((field.name, 0, each.max_length or 0, ""))
            elif isinstance(number, FloatType):
                found.append((field.name, number.ge or 0.0, number.le or 0.0, field.default if number is each else []))
    return tuple(found)

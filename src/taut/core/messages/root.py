"""What all messages are made of: bounds that are checked while decoding, and the class they come from."""

from __future__ import annotations

from functools import cache
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import fields, force_setattr

from taut.core.printable import printable

PROTOCOL_VERSION = 1
SUPERVISOR = -1  # the supervisor's place in the space of ranks

Count = Annotated[int, Meta(ge=0, le=2**62)]
Rank = Annotated[int, Meta(ge=0, le=2**31 - 1)]  # given by the supervisor, never used twice in a run
Text = Annotated[str, Meta(max_length=4096)]
Name = Annotated[str, Meta(max_length=512)]
MAX_WORKERS = 65_536


class Record(Struct, frozen=True, array_like=True):
    """Root of messages and of their parts. All its texts can be printed safely, whoever sent them."""

    def __post_init__(self) -> None:
        for name in _texts(type(self)):
            given = getattr(self, name)
            if (safe := printable(given)) != given:
                force_setattr(self, name, safe)


class Message(Record, frozen=True, tag=True, array_like=True):
    """Root of all messages."""


@cache
def _texts(kind: type[Record]) -> tuple[str, ...]:
    """Return the names of the fields that are texts."""
    return tuple(field.name for field in fields(kind) if getattr(field.type, "__origin__", field.type) is str)

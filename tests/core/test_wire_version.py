"""What crosses a socket changes only together with ``PROTOCOL_VERSION``: an older taut then refuses by name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import get_args

from msgspec import Struct, inspect

from taut.core import messages as m
from taut.core.messages.base import Count, Rank

SCHEMAS = {  # the digest of every version; a change of the messages is a new version and a new line
    1: "eebe9f548e7601e3",
    2: "62b321212a0e197d",
    3: "6aee1b9c43ae3967",
    4: "ccf40633615464b1",
    5: "88ed415059e0fc7b",
    6: "c9f4dc9510afcb16",
    7: "c0a94f5cc7aecc5a",
    8: "6fa473c4e313fe3e",
    9: "f3ab81c9cd237e83",
    10: "c05fd8dba0d4533f",
    11: "8a2d264b4f5773b1",
}
KINDS = [kind for family in (m.PeerMessage, m.WorkerMessage, m.SupervisorMessage) for kind in get_args(family)]
BOUNDS = ("ge", "gt", "le", "lt", "multiple_of", "min_length", "max_length", "pattern")


def described(kind: inspect.Type) -> str:
    """Return a type as text: its bounds, the types inside it, and of a record what travels (its tag; names where it is
    no array)."""
    match kind:
        case inspect.StructType():
            names = ["" if kind.array_like else f"{field.encode_name}:" for field in kind.fields]
            inner = [str(kind.tag)] + [n + described(field.type) for n, field in zip(names, kind.fields, strict=True)]
        case inspect.UnionType():
            inner = sorted(described(each) for each in kind.types)
        case inspect.ListType() | inspect.VarTupleType():
            inner = [described(kind.item_type)]
        case inspect.DictType():
            inner = [described(kind.key_type), described(kind.value_type)]
        case inspect.TupleType():
            inner = [described(each) for each in kind.item_types]
        case inspect.LiteralType():
            inner = [repr(value) for value in kind.values]
        case _:
            inner = []
    bounds = [f"{name}={value!r}" for name in BOUNDS if (value := getattr(kind, name, None)) is not None]
    return f"{type(kind).__name__}({', '.join(inner + bounds)})"


def digest(kinds: Iterable[type[Struct]]) -> str:
    """Return the hash of all messages: their tags, and their fields in order, with types and bounds."""
    lines = sorted(described(inspect.type_info(kind)) for kind in kinds)
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()


def test_the_messages_are_those_of_their_version() -> None:
    found = digest(KINDS)
    line = f'{max(SCHEMAS) + 1}: "{found}",'
    assert SCHEMAS.get(m.PROTOCOL_VERSION) == found, (
        f"the messages have changed: raise PROTOCOL_VERSION in core/messages/base.py, and add {line} to SCHEMAS here"
    )


class Added(m.Message, frozen=True):
    number: Count = 0


class Bounded(m.Message, frozen=True, tag="Added"):
    number: Rank = 0


class Longer(m.Message, frozen=True, tag="Added"):
    number: Count = 0
    other: Count = 0


class Renamed(m.Message, frozen=True, tag="Added"):
    amount: Count = 0


def test_a_new_message_a_new_field_and_another_bound_are_noticed_and_a_field_s_name_is_not() -> None:
    seen = {digest(kinds) for kinds in (KINDS, KINDS[1:], *([*KINDS, one] for one in (Added, Bounded, Longer)))}
    assert len(seen) == 5
    assert digest([Added]) == digest([Renamed])

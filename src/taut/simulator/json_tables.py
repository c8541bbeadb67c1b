"""Convert tables of plain JSON into records and back: every key known, every value of its type, or ``Misuse``."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar

import msgspec

from taut.errors import Misuse
from taut.specs import did_you_mean

Kind = TypeVar("Kind")


def table(record: object, what: str) -> Mapping[Any, Any]:
    """Return ``record``, which must be a table.

    >>> table({"a": 1}, "links")
    {'a': 1}
    """
    if not isinstance(record, Mapping):
        raise Misuse(f"{what}: {record!r}", "a table")
    return record


def read_record(kind: type[Kind], record: object, what: str, **readers: Callable[[Any], Any]) -> Kind:
    """Return the dataclass ``kind`` that ``record`` describes. ``readers``: of the fields that are not plain.

    >>> from taut.simulator.models.links import Link
    >>> read_record(Link, {"loss": 0}, "link").loss
    0.0
    """
    hints = typing.get_type_hints(kind)
    found: dict[str, Any] = {}
    for key, value in table(record, what).items():
        if key not in hints:
            raise Misuse(f"{what} with {key!r}", ", ".join(hints), did_you_mean(str(key), hints))
        if key in readers:
            found[key] = readers[key](value)
            continue
        try:
            found[key] = msgspec.convert(value, hints[key])
        except msgspec.ValidationError as error:
            raise Misuse(f"{what} with {key} = {value!r}", str(error).removeprefix("Expected ")) from None
    required = [each.name for each in fields(kind) if each.default is each.default_factory is MISSING]  # type: ignore[arg-type]
    missing = sorted(set(required) - set(found))
    if missing:
        raise Misuse(f"{what} without {', '.join(missing)}", "all of its figures")
    return kind(**found)


def by_ranks(record: object, what: str, ranks: int = 1) -> dict[Any, Any]:
    """Return a table whose keys are ranks, which JSON has as texts; or several, as in "0-1".

    >>> by_ranks({"3": 4.0}, "stragglers"), by_ranks({"0-1": 4.0}, "links", 2)
    ({3: 4.0}, {(0, 1): 4.0})
    """
    found: dict[Any, Any] = {}
    for key, value in table(record, what).items():
        ends = str(key).split("-")
        if len(ends) != ranks or not all(end.isascii() and end.isdigit() for end in ends):
            raise Misuse(f"{what} of {key!r}", "a worker's rank" if ranks == 1 else "two workers' ranks, as in 0-1")
        found[int(key) if ranks == 1 else tuple(map(int, ends))] = value
    return found

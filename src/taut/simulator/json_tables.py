"""Convert tables of plain JSON into records and back: every key known, every value of its type; else ``Misuse`` names the
key.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from taut.errors import Misuse
from taut.specs import did_you_mean


def table(record: object, what: str) -> Mapping[Any, Any]:
    """Return ``record``, which must be a table.

    >>> table({"a": 1}, "links")
    {'a': 1}
    """
    if not isinstance(record, Mapping):
        raise Misuse(f"{what}: {record!r}", "a table")
    return record


def fields_of(kind: type[Any], record: object, what: str, **readers: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the arguments for the dataclass ``kind``. ``readers``: of the fields that are not plain.

    >>> from taut.simulator.models.links import Link
    >>> fields_of(Link, {"loss": 0}, "link")
    {'loss': 0.0}
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
    return found


def by_rank(record: object, what: str) -> dict[int, Any]:
    """Return a table whose keys are ranks, which JSON has as texts.

    >>> by_rank({"3": 4.0}, "stragglers")
    {3: 4.0}
    """
    found = {}
    for key, value in table(record, what).items():
        text = str(key)
        if not (text.isascii() and text.isdigit()):
            raise Misuse(f"{what} of {key!r}", "a worker's rank")
        found[int(text)] = value
    return found


def by_pair(record: object, what: str) -> dict[tuple[int, int], Any]:
    """Return a table whose keys are two ranks, as in "0-1".

    >>> by_pair({"0-1": 4.0}, "links")
    {(0, 1): 4.0}
    """
    found = {}
    for key, value in table(record, what).items():
        ends = str(key).split("-")
        if len(ends) != 2 or not all(end.isascii() and end.isdigit() for end in ends):
            raise Misuse(f"{what} of {key!r}", "two workers' ranks, as in 0-1")
        found[int(ends[0]), int(ends[1])] = value
    return found

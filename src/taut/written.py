"""How choices are written down, whatever they choose: ``name``, ``name:key=value,key=value`` or a table with ``name``."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from taut.errors import Misuse


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """The remedy for a misspelt word; ``otherwise`` where nothing known is near it.

    >>> did_you_mean("asinc", ["async", "independent"])
    "did you mean 'async'?"
    """
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else otherwise


def named(given: object, what: str, text: str, table: str) -> tuple[str, str, dict[str, Any]]:
    """The name, what follows it (of a text), and the settings (of a table). ``text`` and ``table`` are examples.

    >>> named("torus:3x4", "topology", "", ""), named({"name": "ssp", "slack": 3}, "strategy", "", "")
    (('torus', '3x4', {}), ('ssp', '', {'slack': 3}))
    """
    if isinstance(given, Mapping):
        if not isinstance(given.get("name"), str):
            raise Misuse(f"{what} {dict(given)}", f"a table with a name, such as {table}")
        return given["name"], "", {key: value for key, value in given.items() if key != "name"}
    if not isinstance(given, str):
        raise Misuse(f"{what} {given!r}", f"a text such as {text!r}, or a table")
    name, _, rest = given.partition(":")
    return name.strip(), rest, {}


def pairs(rest: str, blame: str, example: str, positional: list[str] | None = None) -> dict[str, str]:
    """``key=value,key=value``. Values without a key go to ``positional``, or are refused where there is none.

    >>> found = []
    >>> pairs("3, every = 8", "", "", found), found
    ({'every': '8'}, ['3'])
    """
    settings: dict[str, str] = {}
    for part in rest.split(",") if rest.strip() else []:
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals and positional is not None:
            positional.append(key)
        elif not equals or not key:
            raise Misuse(blame, "name:key=value,key=value", f"as in {example}")
        elif key in settings:
            raise Misuse(blame, f"{key} once")
        else:
            settings[key] = value
    return settings

"""How choices are written down, whatever they choose: ``name``, ``name:key=value,key=value`` or a table with ``name``."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from taut.errors import Misuse

_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
_PLACE = re.compile(r"(?:(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[A-Za-z0-9_.-]+)):)?(?P<port>[0-9]{1,5})")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNITS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "minute", "minutes"), "m"),
    **dict.fromkeys(("h", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
    **dict.fromkeys(("step", "steps"), "steps"),
    **dict.fromkeys(("epoch", "epochs"), "epochs"),
}


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


@dataclass(frozen=True)
class Interval:
    """How often a checkpoint is written: every ``amount`` of ``unit``, which is seconds, steps (of the worker that has
    made most) or epochs (of all workers together)."""

    amount: float
    unit: str

    @property
    def counted(self) -> bool:
        """In steps or epochs, not by the clock."""
        return self.unit != "seconds"

    def floor(self, position: float) -> float:
        """The last multiple at or before ``position``."""
        return self.amount * math.floor(position / self.amount)


def parse_place(given: object, blame: str = "dashboard") -> tuple[str, int]:
    """Host and port of ``[HOST:]PORT``, with 127.0.0.1 where no host is given; ``true`` is any free port of it.

    >>> parse_place("8080"), parse_place("0.0.0.0:0"), parse_place("[::1]:80"), parse_place(True)
    (('127.0.0.1', 8080), ('0.0.0.0', 0), ('::1', 80), ('127.0.0.1', 0))
    """
    match = _PLACE.fullmatch("0" if given is True else str(given).strip())
    if match is None or int(match["port"]) > 65_535:
        remedy = "8080 is for this machine alone, 0.0.0.0:8080 for others too"
        raise Misuse(f"{blame} = {given!r}", "[HOST:]PORT with a port up to 65535", remedy)
    return match["six"] or match["host"] or "127.0.0.1", int(match["port"])


def parse_interval(given: object, blame: str = "checkpoint_every") -> Interval:
    """``5m``, ``90s``, ``200steps`` or ``1epoch``; ``Misuse`` for anything else.

    >>> parse_interval("5m"), parse_interval("200 steps").amount, parse_interval("0.5epochs").unit
    (Interval(amount=300.0, unit='seconds'), 200.0, 'epochs')
    >>> parse_interval("5 epcohs")
    Traceback (most recent call last):
    taut.errors.Misuse: checkpoint_every = '5 epcohs': expected a time, steps or epochs; did you mean 'epochs'?
    """
    blame = f"{blame} = {given!r}"
    match = _AMOUNT.fullmatch(given) if isinstance(given, str) else None
    if match is None:
        raise Misuse(blame, "a number and a unit", "such as 5m, 90s, 200steps or 1epoch")
    amount, unit = float(match[1]), _UNITS.get(match[2].lower())
    if unit is None:
        remedy = did_you_mean(match[2].lower(), _UNITS, "try 5m, 90s, 200steps or 1epoch")
        raise Misuse(blame, "a time, steps or epochs", remedy)
    if amount <= 0.0:
        raise Misuse(blame, "more than nothing", "leave it out for no checkpoints")
    if unit == "steps" and amount != int(amount):
        raise Misuse(blame, "a whole number of steps")
    if unit in _SECONDS:
        return Interval(amount * _SECONDS[unit], "seconds")
    return Interval(amount, unit)

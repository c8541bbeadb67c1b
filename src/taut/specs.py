"""Specs: the written form of every choice, ``name``, ``name:key=value,key=value`` or a table with ``name``.

A class says by its fields and their annotations what can be set; ``parse_spec`` reads the settings of all of them alike:
2^-8 and 1e-3 are numbers, yes, true, on and 1 are one answer.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol

from taut.errors import Misuse

Reader = Callable[[Any, str], Any]  # of a value and the words to blame it with
_TYPES = re.compile(r"\b(bool|int|float|str)\b")
_POWER = re.compile(r"\s*2\s*(?:\^|\*\*)\s*\(?\s*([+-]?\d{1,4})\s*\)?\s*")
_TRUTH = {"yes": True, "true": True, "on": True, "1": True, "no": False, "false": False, "off": False, "0": False}
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
_ADDRESS = re.compile(r"(?:(?:\[(?P<six>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[A-Za-z0-9_.-]+)):)?(?P<port>[0-9]{1,5})")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNITS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "minute", "minutes"), "m"),
    **dict.fromkeys(("h", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
    **dict.fromkeys(("step", "steps"), "steps"),
    **dict.fromkeys(("epoch", "epochs"), "epochs"),
}


class Kinds(Protocol):
    """The classes that a spec may name: ``taut.plugins.Registry``. ``kind``: how errors call one of them."""

    kind: str

    def find(self, name: str, remedy: str = "") -> type[Any]:
        """Return the class called ``name``, or raise ``Misuse`` with the remedy."""


def did_you_mean(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return the remedy for a misspelt word; ``otherwise`` where nothing known is near it.

    >>> did_you_mean("asinc", ["async", "independent"])
    "did you mean 'async'?"
    """
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else otherwise


def parse_spec(
    given: object,
    kinds: Kinds,
    example: str,
    *,
    fields_of: Callable[[type[Any]], Mapping[str, Any]] | None = None,
    positional: bool = False,
    nested: Reader | None = None,
) -> tuple[str, dict[str, Any]]:
    """Return the name and the typed settings of ``name``, ``name:key=value,key=value`` or a table with ``name``.

    Arguments:
        given: the text or the table.
        kinds: the classes that can be named; the class says which settings it takes.
        example: a text that would do, for error messages.
        fields_of: of a class, its settings and their annotations; by default the fields of the dataclass.
        positional: whether values without a key go to the settings in order, as in ``ssp:3``.
        nested: reads a setting that is a spec itself; such a setting comes last, since it may have commas of its own.

    >>> from types import SimpleNamespace
    >>> kinds = SimpleNamespace(kind="strategy", find=lambda name, remedy: Interval)
    >>> parse_spec("every:amount=2^-3, unit=steps", kinds, "every:amount=5")
    ('every', {'amount': 0.125, 'unit': 'steps'})
    """
    name, rest, settings = named(given, kinds.kind, example)
    kind = kinds.find(name, f"as in --{kinds.kind} {example}")
    hints = fields_of(kind) if fields_of else settings_of(kind)
    last = [key for key, hint in hints.items() if nested and not _words(hint)]
    loose: list[str] = []
    settings |= pairs(rest, f"{kinds.kind} {given!r}", example, loose if positional else None, last)
    if len(loose) > len(hints):
        raise Misuse(f"{kinds.kind} {given!r}", f"at most {len(hints)} values: {', '.join(hints) or 'none'}")
    for key, value in zip(hints, loose, strict=False):
        if key in settings:
            raise Misuse(f"{kinds.kind} {given!r}", f"{key} once")
        settings[key] = value
    for key in settings:
        if key not in hints:
            remedy = did_you_mean(key, hints)
            raise Misuse(f"{kinds.kind} {name} with {key!r}", ", ".join(hints) or "no parameters", remedy)
    readers = {key: nested if nested and key in last else reader_of(hint) for key, hint in hints.items()}
    return name, {key: readers[key](settings[key], f"{name}: {key}") for key in hints if key in settings}


def named(given: object, kind: str, example: str) -> tuple[str, str, dict[str, Any]]:
    """Return the name, the text after it, and the settings of a table.

    >>> named("torus:3x4", "topology", "ring"), named({"name": "ssp", "slack": 3}, "strategy", "async")
    (('torus', '3x4', {}), ('ssp', '', {'slack': 3}))
    """
    if isinstance(given, Mapping):
        if not isinstance(given.get("name"), str):
            name, _, rest = example.partition(":")
            table = ", ".join([f'name = "{name}"', *rest.replace("=", " = ").split(",")])
            raise Misuse(f"{kind} {dict(given)}", f"a table with a name, such as {{ {table} }}")
        return given["name"], "", {key: value for key, value in given.items() if key != "name"}
    if not isinstance(given, str):
        raise Misuse(f"{kind} {given!r}", f"a text such as {example!r}, or a table")
    name, _, rest = given.partition(":")
    return name.strip(), rest, {}


def pairs(
    rest: str, blame: str, example: str, loose: list[str] | None = None, last: Collection[str] = ()
) -> dict[str, str]:
    """Split ``key=value,key=value``. Values without a key go to ``loose``, or are refused where it is None. A key of
    ``last`` takes all that follows.

    >>> found = []
    >>> pairs("3, every = 8, base=a:b=1,c=2", "", "", found, ["base"]), found
    ({'every': '8', 'base': 'a:b=1,c=2'}, ['3'])
    """
    settings: dict[str, str] = {}
    while rest.strip():
        part, _, after = rest.partition(",")
        key, equals, value = (word.strip() for word in part.partition("="))
        if equals and key in last:
            value, after = rest.partition("=")[2].strip(), ""
        rest = after
        if not equals and loose is not None:
            loose.append(key)
        elif not equals or not key:
            raise Misuse(blame, "name:key=value,key=value", f"as in {example}")
        elif key in settings:
            raise Misuse(blame, f"{key} once")
        else:
            settings[key] = value
    return settings


def settings_of(kind: type[Any]) -> dict[str, Any]:
    """Return what can be set of a dataclass: its fields' names and annotations."""
    return {field.name: field.type for field in fields(kind) if field.init}


def reader_of(hint: Any) -> Reader:
    """Return the function that turns a text, or a value of a table, into what the annotation ``hint`` asks for."""
    words = _words(hint)
    if not words or ("str" in words and len(words) > 1):
        return _guess
    return truth if "bool" in words else text if "str" in words else number if "float" in words else whole


def _words(hint: Any) -> set[str]:
    """Return the plain types that an annotation names, whether it is a text or an object."""
    return set(_TYPES.findall(hint if isinstance(hint, str) else str(hint)))


def number(given: object, blame: str) -> float:
    """Return a number that is written as 0.004, 1e-3, 2^-8 or 2**-8.

    >>> number("2^-8", "tau"), number("2**-1", "tau"), number("1e-3", "tau"), number(0.25, "tau")
    (0.00390625, 0.5, 0.001, 0.25)
    """
    if isinstance(given, int | float) and not isinstance(given, bool):
        return float(given)
    if isinstance(given, str):
        power = _POWER.fullmatch(given)
        try:
            return math.ldexp(1.0, int(power[1])) if power else float(given)
        except (ValueError, OverflowError):
            pass
    raise Misuse(f"{blame}={given}", "a number such as 2^-8, 1e-3 or 0.001")


def whole(given: object, blame: str) -> int:
    """Return a whole number, in any form that ``number`` reads.

    >>> whole("2", "rank"), whole("2^4", "rank"), whole(3.0, "rank")
    (2, 16, 3)
    """
    if isinstance(given, str) and given.strip().lstrip("+-").isdecimal():
        return int(given)  # of any length: a float would round it
    try:
        value = given if isinstance(given, int) and not isinstance(given, bool) else number(given, blame)
    except Misuse:
        value = math.nan
    if not math.isfinite(value) or value != int(value):
        raise Misuse(f"{blame}={given}", "a whole number")
    return int(value)


def truth(given: object, blame: str) -> bool:
    """Return whether the word says yes: yes, true, on or 1; or no, false, off or 0.

    >>> truth("no", "feedback"), truth(True, "feedback"), truth("on", "feedback")
    (False, True, True)
    """
    found = _TRUTH.get(str(given).strip().lower())
    if found is None:
        raise Misuse(f"{blame}={given}", "yes or no")
    return found


def text(given: object, blame: str) -> str:
    """Return the word without the spaces around it."""
    if not isinstance(given, str):
        raise Misuse(f"{blame}={given}", "a word")
    return given.strip()


def _guess(given: object, blame: str) -> Any:
    """Return a whole number, a number or a word, whichever it is first; what is no text stays as it is."""
    for read in (whole, number, text):
        try:
            return read(given, blame) if isinstance(given, str) else given
        except Misuse:
            pass
    return given


def check_whole(record: Any, name: str, least: int, remedy: str = "") -> None:
    """Raise ``Misuse`` unless the setting is a whole number of at least ``least``.

    >>> from types import SimpleNamespace
    >>> check_whole(SimpleNamespace(name="averaging", every=0), "every", 1)
    Traceback (most recent call last):
    taut.errors.Misuse: averaging: every=0: expected a whole number of at least 1
    """
    value = getattr(record, name)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise Misuse(f"{record.name}: {name}={value}", f"a whole number of at least {least}", remedy)


def check_choice(record: Any, name: str, known: Collection[str], remedy: str = "") -> None:
    """Raise ``Misuse`` unless the setting is one of the ``known`` words."""
    value = getattr(record, name)
    if value not in known:
        raise Misuse(f"{record.name}: {name}={value}", f"one of {', '.join(known)}", did_you_mean(value, known, remedy))


def check_from_zero(record: Any, name: str, below: float = 1.0, remedy: str = "") -> None:
    """Raise ``Misuse`` unless ``0 <= value < below``."""
    value = getattr(record, name)
    if not isinstance(value, int | float) or not 0.0 <= value < below:
        bounds = "of at least 0" if below == math.inf else f"from 0 up to, not including, {below:g}"
        raise Misuse(f"{record.name}: {name}={value}", f"a number {bounds}", remedy)


def check_share(record: Any, name: str, low: float = 0.0, high: float = 1.0) -> None:
    """Raise ``Misuse`` unless ``low < value <= high``."""
    value = getattr(record, name)
    if not isinstance(value, int | float) or not low < value <= high:
        raise Misuse(f"{record.name}: {name}={value}", f"a number above {low:g} and up to {high:g}")


@dataclass(frozen=True)
class Interval:
    """How often a checkpoint is written: every ``amount`` of ``unit``, which is seconds, steps (of the worker that has
    made most) or epochs (of all workers together)."""

    amount: float
    unit: str

    @property
    def counted(self) -> bool:
        """Return whether it counts steps or epochs, and not seconds."""
        return self.unit != "seconds"

    def floor(self, position: float) -> float:
        """Return the last multiple of the interval at or before ``position``."""
        return self.amount * math.floor(position / self.amount)


def parse_address(given: object, blame: str = "dashboard") -> tuple[str, int]:
    """Return host and port of ``[HOST:]PORT``, with 127.0.0.1 where no host is given; ``true`` is any free port of it.

    >>> parse_address("8080"), parse_address("0.0.0.0:0"), parse_address("[::1]:80"), parse_address(True)
    (('127.0.0.1', 8080), ('0.0.0.0', 0), ('::1', 80), ('127.0.0.1', 0))
    """
    match = _ADDRESS.fullmatch("0" if given is True else str(given).strip())
    if match is None or int(match["port"]) > 65_535:
        remedy = "8080 is for this machine alone, 0.0.0.0:8080 for others too"
        raise Misuse(f"{blame} = {given!r}", "[HOST:]PORT with a port up to 65535", remedy)
    return match["six"] or match["host"] or "127.0.0.1", int(match["port"])


def parse_interval(given: object, blame: str = "checkpoint_every") -> Interval:
    """Read ``5m``, ``90s``, ``200steps`` or ``1epoch``; raise ``Misuse`` for anything else.

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


_EARLY_STOP = "PATIENCE or PATIENCE:DELTA: a number of evaluations, and by how much a score must be better"


@dataclass(frozen=True)
class EarlyStop:
    """Stop when no score of ``patience`` evaluations was better than the best one by more than ``delta``."""

    patience: int
    delta: float = 0.0

    def __str__(self) -> str:
        return f"{self.patience}:{self.delta:g}" if self.delta else f"{self.patience}"


def parse_early_stop(given: object, blame: str = "stop_early") -> EarlyStop:
    """Read ``3`` or ``3:0.001``; raise ``Misuse`` for anything else.

    >>> parse_early_stop("3"), str(parse_early_stop("5:0.01"))
    (EarlyStop(patience=3, delta=0.0), '5:0.01')
    """
    patience, colon, delta = str(given).strip().partition(":")
    try:
        found = EarlyStop(int(patience), float(delta) if colon else 0.0)
    except ValueError:
        raise Misuse(f"{blame} = {given!r}", _EARLY_STOP, "such as 3, or 3:0.001") from None
    if not 1 <= found.patience <= 1_000_000 or not 0.0 <= found.delta < math.inf:
        raise Misuse(f"{blame} = {given!r}", _EARLY_STOP, "a patience of at least 1, a delta of at least 0")
    return found

"""Quantities as people write them: ``200us``, ``1gbit``, ``64kb``. A number without a unit is refused, as it would be a
guess."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from taut.errors import Misuse
from taut.written import did_you_mean

SECONDS: Mapping[str, float] = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
PER_SECOND: Mapping[str, float] = {"ns": 1e9, "us": 1e6, "ms": 1e3}  # divided by, so that 200us is exactly 0.0002
BITS: Mapping[str, float] = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}
BYTES: Mapping[str, int] = {"b": 1, "kb": 1000, "mb": 1000**2, "kib": 1024, "mib": 1024**2}
_FORM = re.compile(r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?)(.*)", re.IGNORECASE | re.DOTALL)


def parse_duration(written: str, blame: str = "") -> float:
    """Seconds, at least 0. Units: ns, us, ms, s, m (or min), h.

    >>> [parse_duration(each) for each in ("30s", "5m", "200us", "1.5h")]
    [30.0, 300.0, 0.0002, 5400.0]
    """
    number, unit = _split(
        written, blame or f"duration {written!r}", SECONDS, "a duration with a unit", "30s, 5m or 200us"
    )
    if number < 0.0:
        raise Misuse(blame or f"duration {written!r}", "a duration of at least 0", "leave the minus out")
    return number / PER_SECOND[unit] if unit in PER_SECOND else number * SECONDS[unit]


def parse_rate(written: str, blame: str = "") -> float:
    """Bits per second, above 0; ``inf`` for no limit. Units: bit, kbit, mbit, gbit, tbit.

    >>> parse_rate("1gbit"), parse_rate("2.5 Mbit/s"), parse_rate("inf")
    (1000000000.0, 2500000.0, inf)
    """
    blame = blame or f"rate {written!r}"
    if written.strip().lower() in ("inf", "unlimited"):
        return math.inf
    number, unit = _split(written, blame, BITS, "a rate with a unit", "100mbit or 1gbit")
    if number * BITS[unit] < 1.0:
        raise Misuse(blame, "a rate above zero", "a cable that carries nothing is a failed worker: --fail RANK@TIME")
    return number * BITS[unit]


def parse_size(written: str, blame: str = "") -> int:
    """Whole bytes, at least 0. Units: b, kb, mb (thousands), kib, mib (1024s).

    >>> parse_size("64kb"), parse_size("1mib")
    (64000, 1048576)
    """
    blame = blame or f"size {written!r}"
    number, unit = _split(written, blame, BYTES, "a size with a unit", "64kb")
    if number < 0.0:
        raise Misuse(blame, "a size of at least 0", "leave the minus out")
    return round(number * BYTES[unit])


def parse_whole(written: str, blame: str, what: str, least: int = 0) -> int:
    """A whole number of plain digits, at least ``least``.

    >>> parse_whole("3", "--fail 3@2s", "a worker's rank")
    3
    """
    text = written.strip()
    if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) >= least):
        raise Misuse(blame, f"{what} (a whole number from {least} up), not {text!r}")
    return int(text)


def parse_number(written: str, blame: str, what: str) -> float:
    """A finite number.

    >>> parse_number("0.001", "loss=0.001", "a share")
    0.001
    """
    try:
        value = float(written)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Misuse(blame, f"{what} (a number), not {written.strip()!r}")
    return value


def unit_of(written: str) -> str:
    """The letters after the number, in lower case, without ``/s`` or ``ps``; empty where there is no number.

    >>> unit_of("1 Gbit/s"), unit_of("200us"), unit_of("x")
    ('gbit', 'us', '')
    """
    match = _FORM.fullmatch(written.strip())
    unit = match[2].strip().lower() if match else ""
    return unit.removesuffix("/s") if unit != "/s" else unit


def _split(
    written: str, blame: str, units: Mapping[str, float] | Mapping[str, int], expected: str, example: str
) -> tuple[float, str]:
    match = _FORM.fullmatch(written.strip())
    if match is None:
        raise Misuse(blame, expected, f"as in {example}")
    unit = unit_of(written)
    if unit not in units:
        remedy = did_you_mean(unit, units, f"as in {example}") if unit else f"as in {example}"
        given = f"the unit {match[2].strip()!r}" if unit else "no unit"
        raise Misuse(f"{blame} has {given}", f"one of {', '.join(units)}", remedy)
    return float(match[1]), unit

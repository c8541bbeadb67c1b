"""Quantities as people write them: ``200us``, ``1gbit``, ``64kb``. A number without a unit is refused, as it would be a
guess."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taut.errors import Misuse
from taut.specs import did_you_mean

SECONDS: Mapping[str, float] = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
PER_SECOND: Mapping[str, float] = {"ns": 1e9, "us": 1e6, "ms": 1e3}  # divided by, so that 200us is exactly 0.0002
BITS: Mapping[str, float] = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}
_FORM = re.compile(r"([-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?)(.*)", re.IGNORECASE | re.DOTALL)
LINK_EXAMPLE = "as in --link 100mbit or --link 1gbit,200us"


@dataclass(frozen=True)
class LinkSpeed:
    """The speed of a link, in each direction. ``latency_s``: one way."""

    bits_per_s: float = math.inf
    latency_s: float = 0.0


def parse_duration(written: str, blame: str = "") -> float:
    """Return seconds, at least 0. Units: ns, us, ms, s, m (or min), h, d.

    >>> [parse_duration(each) for each in ("30s", "5m", "200us", "1.5h")]
    [30.0, 300.0, 0.0002, 5400.0]
    """
    blame = blame or f"duration {written!r}"
    number, unit = split_unit(written, blame, SECONDS, "a duration with a unit", "30s, 5m or 200us")
    if number < 0.0:
        raise Misuse(blame, "a duration of at least 0", "leave the minus out")
    return number / PER_SECOND[unit] if unit in PER_SECOND else number * SECONDS[unit]


def parse_rate(written: str, blame: str = "") -> float:
    """Return bits per second, above 0; ``inf`` for no limit. Units: bit, kbit, mbit, gbit, tbit.

    >>> parse_rate("1gbit"), parse_rate("2.5 Mbit/s"), parse_rate("inf")
    (1000000000.0, 2500000.0, inf)
    """
    blame = blame or f"rate {written!r}"
    if written.strip().lower() in ("inf", "unlimited"):
        return math.inf
    number, unit = split_unit(written, blame, BITS, "a rate with a unit", "100mbit or 1gbit")
    if number * BITS[unit] < 1.0:
        raise Misuse(blame, "a rate above zero", "a cable that carries nothing is a failed worker: --fail RANK@TIME")
    return number * BITS[unit]


def parse_link(written: str, blame: str = "") -> LinkSpeed:
    """Read a rate and, after a comma, a latency; either may be left out, and both may be named.

    >>> parse_link("100mbit"), parse_link("rate=1gbit, 5ms")
    (LinkSpeed(bits_per_s=100000000.0, latency_s=0.0), LinkSpeed(bits_per_s=1000000000.0, latency_s=0.005))
    """
    blame = blame or f"--link {written}"
    found = link_words(written, blame, ("rate", "latency"), LINK_EXAMPLE)
    rate, latency = found.get("rate", "inf"), found.get("latency", "0s")
    return LinkSpeed(parse_rate(rate, blame), parse_duration(latency, blame))


def link_words(written: str, blame: str, keys: Sequence[str], example: str) -> dict[str, str]:
    """Split the description of a link at its commas: ``key=value``, or a value whose unit tells whether it is the rate or
    the latency.

    >>> link_words("1gbit, 200us", "--link", ("rate", "latency"), "as in 1gbit")
    {'rate': '1gbit', 'latency': '200us'}
    """
    found: dict[str, str] = {}
    for part in written.split(","):
        key, equals, value = (text.strip() for text in part.partition("="))
        if not equals:
            key, value = _kind(key, blame, example), key
        if key not in keys:
            raise Misuse(f"{blame} with {key!r}", f"one of {', '.join(keys)}", did_you_mean(key, keys, example))
        if key in found:
            raise Misuse(blame, f"one {key}")
        found[key] = value
    return found


def _kind(value: str, blame: str, example: str) -> str:
    unit = unit_of(value)
    if unit in SECONDS:
        return "latency"
    if unit in BITS or value.lower() in ("inf", "unlimited"):
        return "rate"
    if not unit:
        raise Misuse(blame, "a rate or a latency, each with its unit" if value else "RATE,LATENCY", example)
    units = (*BITS, *SECONDS)
    raise Misuse(f"{blame} with the unit {unit!r}", f"one of {', '.join(units)}", did_you_mean(unit, units, example))


def parse_resources(written: object, blame: str = "") -> dict[str, float]:
    """Read what a worker takes of its machine, by name.

    >>> parse_resources("CPU=1, GPU=0.5")
    {'CPU': 1.0, 'GPU': 0.5}
    """
    found: dict[str, float] = {}
    for part in str(written).split(","):
        name, _, amount = (text.strip() for text in part.partition("="))
        try:
            found[name] = float(amount)
        except ValueError:
            found[name] = 0.0
        if not name or not 0.0 < found[name] < math.inf:
            expected = "names with an amount above 0, NAME=N"
            raise Misuse(blame or f"resources {written!r}", expected, "as in CPU=1 or CPU=4,GPU=0.5")
    return found


def unit_of(written: str) -> str:
    """Return the letters after the number, in lower case, without ``/s``; empty where there is no number.

    >>> unit_of("1 Gbit/s"), unit_of("200us"), unit_of("x")
    ('gbit', 'us', '')
    """
    match = _FORM.fullmatch(written.strip())
    unit = match[2].strip().lower() if match else ""
    return unit.removesuffix("/s") if unit != "/s" else unit


def split_unit(
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


def size(nbytes: float | None) -> str:
    """Return bytes with a unit.

    >>> size(512), size(2_500), size(3_400_000), size(None)
    ('512 B', '2.5 kB', '3.4 MB', '-')
    """
    if nbytes is None:
        return "-"
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} TB"

"""Sizes and numbers as people write them; rates and durations are in ``taut.quantities``."""

from __future__ import annotations

import math
from collections.abc import Mapping

from taut.errors import Misuse
from taut.quantities import BITS, SECONDS, parse_duration, parse_rate, split_unit, unit_of
from taut.specs import number

__all__ = ["BITS", "SECONDS", "parse_duration", "parse_number", "parse_rate", "parse_size", "parse_whole", "unit_of"]
BYTES: Mapping[str, int] = {"b": 1, "kb": 1000, "mb": 1000**2, "kib": 1024, "mib": 1024**2}


def parse_size(written: str, blame: str = "") -> int:
    """Parse whole bytes, at least 0. Units: b, kb, mb (thousands), kib, mib (1024s).

    >>> parse_size("64kb"), parse_size("1mib")
    (64000, 1048576)
    """
    blame = blame or f"size {written!r}"
    number, unit = split_unit(written, blame, BYTES, "a size with a unit", "64kb")
    if number < 0.0:
        raise Misuse(blame, "a size of at least 0", "leave the minus out")
    return round(number * BYTES[unit])


def parse_whole(written: str, blame: str, what: str, least: int = 0) -> int:
    """Parse a whole number of plain digits, at least ``least``.

    >>> parse_whole("3", "--fail 3@2s", "a worker's rank")
    3
    """
    text = written.strip()
    if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) >= least):
        raise Misuse(blame, f"{what} (a whole number from {least} up), not {text!r}")
    return int(text)


def parse_number(written: str, blame: str, what: str) -> float:
    """Parse a finite number.

    >>> parse_number("1e-3", "loss=1e-3", "a share"), parse_number("2^-3", "loss=2^-3", "a share")
    (0.001, 0.125)
    """
    try:
        value = number(written, blame)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Misuse(blame, f"{what} (a number), not {written.strip()!r}")
    return value

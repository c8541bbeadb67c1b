"""Checks of codecs' hyper-parameters, and numbers as people write them."""

from __future__ import annotations

import math
from typing import Any

from taut.errors import Misuse


def written(value: float | bool) -> str:
    """Return the value as ``taut.specs`` reads it back, powers of two as such."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    mantissa, exponent = math.frexp(value)
    return f"2^{exponent - 1}" if mantissa == 0.5 and value not in (0.25, 0.5, 1.0, 2.0, 4.0) else repr(float(value))


def check_power(codec: Any, parameter: str) -> None:
    """Raise ``Misuse`` unless the parameter is None or a positive power of two that float32 holds with room to spare."""
    value = getattr(codec, parameter)
    if value is None:
        return
    check_positive(codec, parameter)
    mantissa, exponent = math.frexp(value)
    if mantissa != 0.5:
        raise Misuse(
            f"{codec.name}: {parameter}={value:g}",
            "a power of two, so that sums are exact whatever the order",
            f"the nearest are 2^{exponent - 1} = {math.ldexp(1.0, exponent - 1):g} and "
            f"2^{exponent} = {math.ldexp(1.0, exponent):g}",
        )
    if not -100 <= exponent <= 100:
        raise Misuse(f"{codec.name}: {parameter}={value:g}", "a power of two from 2^-100 to 2^99")


def check_positive(codec: Any, parameter: str) -> None:
    value = getattr(codec, parameter)
    if value is not None and not (value > 0.0 and math.isfinite(value)):
        raise Misuse(f"{codec.name}: {parameter}={value:g}", "a positive number", f"try {parameter}=2^-8")


def check_not_negative(codec: Any, parameter: str) -> None:
    value = getattr(codec, parameter)
    if value is not None and not (value >= 0.0 and math.isfinite(value)):
        raise Misuse(f"{codec.name}: {parameter}={value:g}", "0 or a positive number", f"try {parameter}=4")


def check_density(codec: Any) -> None:
    value = codec.density
    if value is not None and not 0.0 < value <= 1.0:
        expected = "a share of the elements, above 0 and up to 1"
        raise Misuse(f"{codec.name}: density={value:g}", expected, "try density=0.005")


def check_one_of(codec: Any, *parameters: str) -> None:
    given = [name for name in parameters if getattr(codec, name) is not None]
    if len(given) > 1:
        raise Misuse(f"{codec.name}: {' and '.join(given)}", f"one of {', '.join(parameters)}", "drop the others")

"""The properties of a codec, for ``taut codecs``, the simulator, the adviser, the docs and the conformance suite."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from taut.errors import Misuse


def check_costs(record: Any, what: str) -> None:
    """Raise ``Misuse`` unless every number of the record is finite and not negative."""
    for each in fields(record):
        value = getattr(record, each.name)
        if isinstance(value, Mapping):
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < math.inf:
            raise Misuse(f"{what} with {each.name} = {value!r}", "a number from 0 up")


@dataclass(frozen=True)
class CodecCost:
    """One update of n elements is ``n * bits_per_element / 8`` bytes. Making it takes ``fixed_s + n *
    encode_s_per_element``, including it ``bytes * absorb_s_per_byte``.

    >>> CodecCost(1e-9, 4e-9, 0.384, 2e-5).nbytes(1_000_000)
    48000
    """

    encode_s_per_element: float
    absorb_s_per_byte: float
    bits_per_element: float
    fixed_s: float = 0.0

    def __post_init__(self) -> None:
        check_costs(self, "a codec's cost")

    def nbytes(self, elements: int) -> int:
        """Return the bytes of one update of so many elements."""
        return math.ceil(elements * self.bits_per_element / 8)

    def encode_s(self, elements: int) -> float:
        return self.fixed_s + elements * self.encode_s_per_element

    def absorb_s(self, nbytes: int) -> float:
        return nbytes * self.absorb_s_per_byte


@dataclass(frozen=True)
class CodecInfo:
    """``title``: one line. ``bits``: per element of an update that touches all, as it is set. ``error``: a bound of the
    relative squared error of one update, E|Q(v) - v|^2 <= error |v|^2 (None: another bound, in ``bound``).
    ``bound``: the bound in words. ``unbiased``: E Q(v) = v. ``summable``: payloads can be added without decoding
    them. ``paper``: where it comes from. ``cost``: as ``bench/costs.py`` measured it, for the simulator (None: it was not
    measured). ``advised``: its turn when `taut advise` tries codecs, from 1; the others of taut's own (0) differ
    less from one of these in speed than in what they do to quality, which the adviser does not know."""

    title: str
    bits: float
    bound: str
    paper: str
    error: float | None = None
    unbiased: bool = False
    summable: bool = False
    cost: CodecCost | None = None
    advised: int = 0


def bits_of_signs(density: float) -> float:
    """Return the bits per element where a share ``density`` of them sends a sign at a random index: what entropy
    coding comes near to.

    >>> round(bits_of_signs(0.001), 4), bits_of_signs(1.0)
    (0.0124, 1.0)
    """
    if density >= 1.0:
        return 1.0
    other = 1.0 - density
    return density - density * math.log2(density) - other * math.log2(other)

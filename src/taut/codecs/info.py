"""What a codec says of itself: read by ``taut codecs``, by the documentation and by the conformance suite."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class CodecInfo:
    """``title``: one line. ``bits``: per element of an update that touches all, as it is set. ``error``: a bound of the
    relative squared error of one update, E|Q(v) - v|^2 <= error |v|^2 (None: another bound, in ``bound``).
    ``bound``: the bound in words. ``unbiased``: E Q(v) = v. ``summable``: payloads can be added without decoding
    them. ``paper``: where it comes from."""

    title: str
    bits: float
    bound: str
    paper: str
    error: float | None = None
    unbiased: bool = False
    summable: bool = False


def bits_of_signs(density: float) -> float:
    """Bits per element where a share ``density`` of them sends a sign at a random place: what entropy coding comes
    near to.

    >>> round(bits_of_signs(0.001), 4), bits_of_signs(1.0)
    (0.0124, 1.0)
    """
    if density >= 1.0:
        return 1.0
    other = 1.0 - density
    return density - density * math.log2(density) - other * math.log2(other)

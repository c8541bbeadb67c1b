"""By how much a payload may change an element: an update far beyond the run's weights is refused.

The bound is the same at every worker and at every moment of a run, for all must refuse the same bytes: the grid's range
(``exact_grid.py``: 32 times the largest weight that the run began with, at least 8) times ``FAR``.
"""

from __future__ import annotations

import numpy as np

from taut.codecs.exact_grid import BITS, Grid
from taut.codecs.parallel import run_chunks
from taut.codecs.wire.layouts import LAYOUTS
from taut.codecs.wire.layouts.base import largest
from taut.codecs.wire.payload import CHUNK, COUNTS, PAIRS, Bytes, Header, Kind, body_of, read, read_pairs
from taut.errors import MalformedMessage

FAR = 2.0**12  # a script without any sense of scale stays below it, and float32 sums are finite for long


def check_reach(payload: Bytes, head: Header, grid: Grid) -> None:
    """Refuse a payload, which was validated, that may change an element by more than the run's weights allow.

    >>> from taut.codecs.wire.payload import build
    >>> words = build(Header(Kind.WORDS, 2.0**20, 0, 64, 1), np.array([3 << 1], np.uint32))
    >>> check_reach(words, Header(Kind.WORDS, 2.0**20, 0, 64, 1), Grid((64,), (-21,)))
    Traceback (most recent call last):
    taut.errors.MalformedMessage: an update that changes a weight by 1.05e+06; the run's weights allow 3.28e+04
    """
    allowed = FAR * 2.0**BITS * grid.finest
    most = reach(payload, head, allowed)
    if most > allowed:
        raise MalformedMessage(f"an update that changes a weight by {most:.3g}; the run's weights allow {allowed:.3g}")


def reach(payload: Bytes, head: Header, enough: float = 0.0) -> float:
    """Return the largest change of an element, or a bound of it, which need not be close if it is below ``enough``."""
    if head.kind is Kind.WORDS:
        if head.quantum * head.count <= enough:
            return head.quantum * head.count
        words = read(payload, np.uint32, head.count) >> 1
        return head.quantum * float(np.unique(words, return_counts=True)[1].max(initial=0))
    if head.kind in LAYOUTS:
        return LAYOUTS[head.kind].reach(head, body_of(payload))
    if head.kind is Kind.DENSE:
        values = read(payload, np.float32, head.length)
        return max(run_chunks(lambda start, stop: largest(values[start:stop]), 0, values.size, CHUNK), default=0.0)
    if head.kind in PAIRS or head.kind in COUNTS:
        pairs = head.kind in PAIRS
        numbers = read_pairs(payload, head)[1] if pairs else read(payload, COUNTS[head.kind], head.length)
        return head.quantum * largest(numbers)
    return head.quantum

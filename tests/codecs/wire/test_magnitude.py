"""An update far beyond the run's weights is refused, by every worker alike; all others are taken."""

from __future__ import annotations

import numpy as np
import pytest
from fuzzers.payload_samples import SIZE, payload_samples

from taut.codecs import parse, snap
from taut.codecs.wire.magnitude import FAR, reach
from taut.codecs.wire.merge import expand
from taut.codecs.wire.payload import COUNTS, PAIRS, Header, Kind, build, header, index_type
from taut.errors import MalformedMessage

ALLOWED = FAR * 8.0  # of weights that begin below 1/4


@pytest.mark.parametrize("payload", payload_samples(), ids=lambda payload: header(payload).kind.name)
def test_the_reach_bounds_what_a_payload_changes_and_is_not_far_off(payload: bytes) -> None:
    head = header(payload)
    largest = float(np.abs(expand(payload, SIZE)).max())
    slack = 1.001 if head.kind is not Kind.COSINES else 100.0  # the coefficients' own size, not their sum's
    assert largest <= slack * reach(payload, head)
    assert reach(payload, head) <= 1000.0 * max(largest, 1e-3)


def of_magnitude(kind: Kind, magnitude: float) -> bytes:
    """A well-formed payload that changes element 3 by so much."""
    at = np.array([3])
    if kind is Kind.WORDS:
        return build(Header(kind, magnitude, 0, 64, 1), (at << 1).astype(np.uint32))
    if kind in PAIRS:
        return build(Header(kind, magnitude, 0, 64, 1), at.astype(index_type(64)), np.ones(1, PAIRS[kind]))
    numbers = np.zeros(64, COUNTS.get(kind, np.float32))
    numbers[3] = 1 if kind in COUNTS else magnitude
    return build(Header(kind, magnitude if kind in COUNTS else 0.0, 0, 64, 64), numbers)


@pytest.mark.parametrize("kind", [Kind.WORDS, Kind.COUNTS8, Kind.COUNTS32, Kind.PAIRS16, Kind.DENSE])
@pytest.mark.parametrize("exponent", [20, 60, 90])
def test_magnitudes_from_two_to_the_20th_on_are_refused_and_nothing_changes(kind: Kind, exponent: int) -> None:
    w = np.full(64, 0.1, np.float32)
    codec = parse("dense" if kind is Kind.DENSE else "tether:slack=2^-6")
    state = codec.start(w, 4, snap(w, [64]))
    before = w.copy()
    with pytest.raises(MalformedMessage, match="changes a weight by"):
        codec.absorb(state, of_magnitude(kind, 2.0**exponent))
    assert np.array_equal(w, before)
    codec.absorb(state, of_magnitude(kind, ALLOWED))
    assert w[3] > 1000.0, "what a careless script may do is taken"


def test_words_that_add_up_are_counted_together() -> None:
    w = np.full(64, 0.1, np.float32)
    codec = parse("tether:slack=2^-6")
    state = codec.start(w, 4, snap(w, [64]))
    words = np.full(64, 3 << 1, np.uint32)
    with pytest.raises(MalformedMessage, match="changes a weight by"):
        codec.absorb(state, build(Header(Kind.WORDS, ALLOWED / 32, 0, 64, 64), words))
    codec.absorb(state, build(Header(Kind.WORDS, ALLOWED / 32, 0, 64, 64), (np.arange(64) << 1).astype(np.uint32)))

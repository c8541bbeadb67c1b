"""The wire format: what is written is read, and what is not a payload is refused, whatever it is."""

import contextlib
import tracemalloc

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs import Dense, Tether, merge, validate
from taut.codecs.wire.layouts import LAYOUTS
from taut.codecs.wire.merge import common_unit, pack
from taut.codecs.wire.payload import COUNTS, HEADER, PAIRS, Header, Kind, build, header
from taut.codecs.wire.rice import encode
from taut.errors import MalformedMessage

SIZE = 640
PLAIN = [kind for kind in Kind if kind not in LAYOUTS]  # what compressors write: test_codec_fuzz.py


def payload_of(kind: Kind, length: int = 256) -> bytes:
    rng = np.random.default_rng(kind)
    if kind is Kind.DENSE:
        return build(Header(kind, 0.0, 64, length, length), rng.standard_normal(length, np.float32))
    if kind is Kind.WORDS:
        words = rng.integers(0, 2 * length, 9).astype(np.uint32)
        return build(Header(kind, 0.25, 64, length, 9), words)
    if kind is Kind.RICE:
        words = np.arange(0, length, 5, dtype=np.uint32) << 1
        return build(Header(kind, 0.25, 64, length, len(words)), encode(words, length))
    if kind is Kind.BITMAP:
        return build(Header(kind, 0.25, 64, length, length // 4 * 2), np.full(length // 4, 0b00100001, np.uint8))
    if kind in PAIRS:
        at = np.arange(0, length, 8, dtype=np.uint32)
        return build(Header(kind, 0.25, 64, length, at.size), at, rng.integers(-9, 9, at.size).astype(PAIRS[kind]))
    numbers = rng.integers(-99, 99, length).astype(COUNTS[kind])
    return build(Header(kind, 0.25, 64, length, length), numbers)


def applied(payload: bytes, size: int = SIZE) -> np.ndarray:
    codec = Dense()
    state = codec.start(np.zeros(size, np.float32), 1)
    codec.absorb(state, payload)
    assert state.w.tobytes() == state.b.tobytes()
    return state.b


@pytest.mark.parametrize("kind", PLAIN)
def test_every_kind_is_valid_where_it_fits_and_at_odd_addresses(kind):
    payload = payload_of(kind)
    assert validate(payload, SIZE).kind is kind
    shifted = memoryview(b"x" + payload)[1:]
    assert (applied(shifted) == applied(payload)).all()
    assert applied(payload).any()
    with pytest.raises(MalformedMessage):
        validate(payload, 319)


@settings(max_examples=some(400), deadline=None)
@given(st.sampled_from(PLAIN), st.data())
def test_mutated_bytes_are_refused_or_harmless(kind, data):
    """Any damage is either still a valid payload within the vector, or ``MalformedMessage``; nothing else."""
    raw = bytearray(payload_of(kind))
    for _ in range(data.draw(st.integers(1, 4))):
        index = data.draw(st.one_of(st.integers(0, HEADER.size - 1), st.integers(0, len(raw) - 1)))
        raw[index] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))] if data.draw(st.booleans()) else raw
    w = np.zeros(SIZE, np.float32)
    state = Tether().start(w, 2)
    before = state.b.copy()
    try:
        Tether().absorb(state, bytes(raw))
    except MalformedMessage:
        assert state.b.tobytes() == before.tobytes()
        assert w.tobytes() == before.tobytes()
    with contextlib.suppress(MalformedMessage):
        merge([bytes(raw), payload_of(Kind.WORDS)], SIZE)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes(raw):
    with pytest.raises(MalformedMessage):
        validate(raw, 2**40) and validate(raw, 0)


def head(**changes) -> bytes:
    fields = {
        "kind": 1,
        "version": 1,
        "zero": 0,
        "quantum": 0.5,
        "base": 0,
        "length": 64,
        "count": 1,
    } | changes
    return HEADER.pack(*fields.values())


WORD = np.array([3], np.uint32).tobytes()


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "0 bytes"),
        (head(kind=0) + WORD, "unknown kind 0"),
        (head(version=2) + WORD, "format 2"),
        (head(zero=1) + WORD, "format 1/1"),
        (head(quantum=float("nan")) + WORD, "quantum nan"),
        (head(quantum=float("inf")) + WORD, "quantum inf"),
        (head(quantum=-0.5) + WORD, "quantum -0.5"),
        (head(quantum=0.0) + WORD, "quantum 0.0"),
        (head(length=0) + WORD, "elements"),
        (head(length=2**63, base=2**63) + WORD, "of a vector of 64"),
        (head(base=64) + WORD, "elements 64..127"),
        (head(count=2) + WORD, "4 bytes instead of 8"),
        (head(count=2**32 - 1) + WORD, "instead of"),
        (head() + np.array([64 << 1], np.uint32).tobytes(), "word for element 64"),
        (head(kind=2, count=1) + b"\3" + bytes(15), "is not used"),
        (head(kind=2, count=2) + b"\1" + bytes(15), "counts 2"),
        (head(kind=2, length=63, count=1) + bytes(15) + b"\x40", "beyond its range"),
        (head(kind=3, count=63) + bytes(64), "counts 63"),
        (head(kind=6, quantum=0.5, count=64) + bytes(256), "this kind has none"),
        (head(kind=6, quantum=0.0, count=64) + np.full(64, np.nan, np.float32).tobytes(), "not finite"),
        (head(kind=7, count=2) + np.array([5, 5], np.uint32).tobytes() + b"\1\1", "do not rise"),
        (head(kind=7, count=1) + np.array([64], np.uint32).tobytes() + b"\1", "pair for element 64"),
    ],
)
def test_refused_with_a_reason(raw, says):
    with pytest.raises(MalformedMessage, match=says):
        validate(raw, 64)


def test_a_header_that_claims_much_allocates_little():
    """Validation and merging take memory for the message, not for what it claims to cover."""
    far = [build(Header(Kind.WORDS, 0.5, base, 2**31, 1), np.array([7 << 1], np.uint32)) for base in (0, 2**50)]
    tracemalloc.start()
    try:
        for payload in far:
            validate(payload, 2**60)
        merged = merge(far)
        for claim in (head(kind=6, quantum=0.0, length=2**62, count=0), head(kind=2, length=2**62)):
            with pytest.raises(MalformedMessage):
                validate(claim + WORD, 2**63)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert header(merged).length == 2**50 + 2**31
    assert len(merged) == HEADER.size + 2 * 9
    assert merge([merged, far[0]])[: HEADER.size - 4] == merged[: HEADER.size - 4]
    validate(merged, 2**51)


@settings(max_examples=some(200), deadline=None)
@given(
    st.dictionaries(st.integers(0, 299), st.integers(-(2**18), 2**18).filter(bool), max_size=300),
    st.sampled_from([1, 100, 2**18]),
)
def test_pack_writes_what_it_was_given_in_the_smallest_kind(counts, cap):
    indices = np.array(sorted(counts), np.int64)
    numbers = np.array([max(-cap, min(cap, counts[i])) for i in sorted(counts)], np.int64)
    payload = pack(indices, numbers, 0.5, 0, 300)
    want = np.zeros(300, np.float32)
    want[indices] = numbers * 0.5
    assert (applied(payload, 300) == want).all()
    assert len(payload) <= HEADER.size + 4 * 300
    assert len(payload) <= HEADER.size + 8 * len(counts)


def test_merge_of_different_kinds_and_dense():
    parts = [payload_of(kind) for kind in PLAIN]
    np.testing.assert_allclose(applied(merge(parts)), sum(applied(part) for part in parts), rtol=1e-5, atol=1e-5)
    exact = [payload_of(kind) for kind in PLAIN if kind is not Kind.DENSE]
    assert header(merge(exact)).kind is not Kind.DENSE
    assert (applied(merge(exact)) == sum(applied(part) for part in exact)).all()
    with pytest.raises(MalformedMessage):
        merge([])


def test_opposite_signs_cancel():
    plus, minus = (build(Header(Kind.WORDS, 0.5, 0, 64, 1), np.array([8 | s], np.uint32)) for s in (0, 1))
    merged = merge([plus, minus])
    assert header(merged).count == 0
    assert not applied(merged).any()


def test_common_unit():
    assert common_unit([2**-8, 2**-9]) == 2**-9
    assert common_unit([6 * 2**-10, 5 * 2**-10]) == 2**-10
    assert common_unit([6 * 2**-10, 4 * 2**-10]) == 2**-9
    assert common_unit([1.0, 2.0**-60]) == 0.0

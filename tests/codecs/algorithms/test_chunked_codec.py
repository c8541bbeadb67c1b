"""Chunked top-k of two bits: each chunk sends as many of its largest, each as the mean of its half of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs import CompressorState, expand, parse
from taut.codecs.algorithms.chunked import Chunked
from taut.codecs.wire.layouts.chunked import CHUNK, packed, sizes_of
from taut.codecs.wire.payload import Header, Kind, build, header
from taut.codecs.wire.validate import validate
from taut.errors import MalformedMessage, Misuse

SEEDS = st.integers(0, 2**32 - 1)


def of_chunk(v, top, bits):
    """What the equation says, entry by entry."""
    chosen = sorted(range(len(v)), key=lambda i: (-abs(v[i]), i))[:top]
    mean = sum(abs(float(v[i])) for i in chosen) / top
    upper = [i for i in chosen if bits == 2 and abs(float(v[i])) > mean]
    q = np.zeros(len(v))
    for half in (upper, [i for i in chosen if i not in upper]):
        for i in half:
            q[i] = np.copysign(np.mean([abs(float(v[j])) for j in half]), -1.0 if v[i] < 0 else 1.0)
    return q


@settings(max_examples=25, deadline=None)
@given(
    SEEDS,
    st.integers(1, 3 * CHUNK // 2),
    st.sampled_from([0.001, 0.01, 0.2, 1.0]),
    st.sampled_from([1, 2]),
    st.booleans(),
)
def test_it_is_its_equation(seed, size, density, bits, ties):
    rng = np.random.default_rng(seed)
    v = rng.standard_normal(size).astype(np.float32)
    v = np.round(v) if ties else v
    codec = Chunked(density, bits)
    expected = []
    for lo in range(0, size, CHUNK):
        chunk = v[lo : lo + CHUNK]
        expected.append(of_chunk(chunk, -(-codec.top * len(chunk) // CHUNK), bits))
    payload = codec.encode(v, CompressorState(size))
    np.testing.assert_allclose(expand(payload, size), np.concatenate(expected), rtol=1e-6)
    assert header(payload).count == sizes_of(size, codec.top)[1]


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.integers(1, 40 * CHUNK), st.sampled_from([1, 2]))
def test_a_vector_in_pieces_is_the_same_payload_and_as_long_as_stated(seed, size, bits):
    v = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    v[: 16 * CHUNK] *= seed % 2  # a piece in which nothing happened
    codec = Chunked(0.01, bits)
    pieces = [codec.compress(v[lo : lo + codec.piece], lo, CompressorState(size)) for lo in range(0, size, codec.piece)]
    payload = codec.payload(pieces, 0, size)
    assert payload == codec.encode(v, CompressorState(size))
    q = np.zeros(size, np.float32)
    for lo, piece in zip(range(0, size, codec.piece), pieces, strict=True):
        q[lo + piece.indices] = piece.q
    assert np.array_equal(expand(payload, size), q)
    if size > 8 * CHUNK:
        assert 8 * len(payload) / size == pytest.approx(codec.facts.bits, rel=0.15)


def test_residuals_are_sent_in_the_end_chunk_by_chunk():
    """With error feedback every element's changes arrive, however small they are beside those of another chunk."""
    codec, w = parse("chunked:density=0.01"), np.zeros(2 * CHUNK, np.float32)
    state = codec.start(w, 1)
    w[:CHUNK] += 1000.0 * np.sin(np.arange(CHUNK))
    w[CHUNK:] += 1e-3 * np.cos(np.arange(CHUNK))
    sent = np.zeros_like(w)
    for _ in range(600):
        sent += expand(codec.emit(state, 0, len(w)), len(w))
    np.testing.assert_allclose(
        sent + state.r,
        np.concatenate([1000 * np.sin(np.arange(CHUNK)), 1e-3 * np.cos(np.arange(CHUNK))]),
        rtol=1e-3,
        atol=1e-4,
    )
    for half in (slice(0, CHUNK), slice(CHUNK, None)):
        assert np.linalg.norm(state.r[half]) < 0.25 * np.linalg.norm(sent[half])


def body(top=2, levels=2, scales=(1.0, 2.0), indices=(3, 5), signs=0, upper=0, extra=b""):
    parts = [np.array([top, levels], np.uint16), np.array(scales, np.float32), packed(np.array(indices, np.uint16))]
    return [*parts, np.array([signs, *([upper] if levels == 2 else [])], np.uint8), np.frombuffer(extra, np.uint8)]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"top": 0}, "0 entries"),
        ({"top": 5000}, "5000 entries"),
        ({"levels": 3}, "3 magnitudes"),
        ({"scales": (1.0,)}, "body of"),
        ({"extra": b"x"}, "body of"),
        ({"scales": (-1.0, 2.0)}, "negative"),
        ({"scales": (1.0, np.nan)}, "not finite"),
        ({"indices": (5, 3)}, "rise"),
        ({"indices": (5, 5)}, "rise"),
        ({"signs": 4}, "beyond its entries"),
        ({"upper": 128}, "beyond its entries"),
    ],
)
def test_bodies_that_make_no_sense_are_refused(given, why):
    assert validate(build(Header(Kind.CHUNKED, 0.0, 0, CHUNK, 2), *body()), CHUNK).count == 2
    with pytest.raises(MalformedMessage, match=why):
        validate(build(Header(Kind.CHUNKED, 0.0, 0, CHUNK, 2), *body(**given)), CHUNK)


def test_the_last_chunk_ends_where_the_range_does():
    assert validate(build(Header(Kind.CHUNKED, 0.0, 0, 9, 1), *body(indices=(8,))), 9).count == 1
    for indices, why in (((9,), "element 9 of a chunk of 9"), ((8, 1), "index beyond")):
        with pytest.raises(MalformedMessage, match=why):
            validate(build(Header(Kind.CHUNKED, 0.0, 0, 9, 1), *body(indices=indices)), 9)
    with pytest.raises(MalformedMessage, match="counts 2"):
        validate(build(Header(Kind.CHUNKED, 0.0, 0, 9, 2), *body(indices=(8,))), 9)


@pytest.mark.parametrize("given", ["chunked:density=0", "chunked:density=1.5", "chunked:bits=0", "chunked:bits=3"])
def test_settings_that_cannot_be_are_refused(given):
    with pytest.raises(Misuse, match="chunked"):
        parse(given)

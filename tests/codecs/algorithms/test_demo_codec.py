"""DeMo: the transform is the cosine transform, the largest coefficients go, the rest is a momentum that decays."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs import CompressorState, DeMo, Feedback, Header, Kind, expand, parse, validate
from taut.codecs.math.dct import CHUNK, keep_chunks, keep_lines
from taut.codecs.vector_codec import VectorCodec
from taut.codecs.wire.payload import build, header
from taut.errors import MalformedMessage, Misuse

POINTS = np.arange(64)
MATRIX = np.cos(np.pi * (POINTS + 0.5) * POINTS[:, None] / 64) / np.sqrt(32)
MATRIX[0] = 1 / 8


def normal(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(size, np.float32)


def test_the_transform_is_the_cosine_transform():
    np.testing.assert_allclose(MATRIX @ MATRIX.T, np.eye(64), atol=1e-12)
    v = normal(2 * CHUNK)
    indices, values, q = keep_chunks(v, CHUNK)
    want = MATRIX @ v.reshape(2, 64, 64).astype(np.float64) @ MATRIX.T
    assert (indices.reshape(2, CHUNK) == np.arange(CHUNK)).all()
    np.testing.assert_allclose(values, want.ravel(), atol=2e-5)
    np.testing.assert_allclose(q, v, atol=2e-5)
    indices, values, q = keep_lines(v[:130], 64)
    want = np.pad(v[:130], (0, 62)).reshape(3, 64).astype(np.float64) @ MATRIX.T
    np.testing.assert_allclose(values, want.ravel(), atol=1e-5)
    np.testing.assert_allclose(q, v[:130], atol=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.sampled_from([1, 2, 31, 32, 64, 65, 700, 4096]), st.integers(0, 99), st.booleans())
def test_numpy_and_torch_give_the_same_bits(chunks, top, seed, equal):
    v = normal(chunks * CHUNK, seed)
    if equal:  # many coefficients that are zero, or as large as each other
        v = np.sign(v[: CHUNK // 64]).repeat(64 * chunks)
    line = v[: 64 * seed + 1][:CHUNK]
    for keep, some, count in ((keep_chunks, v, top), (keep_lines, line, min(top, 64))):
        ours, theirs = keep(some, count), keep(torch.from_numpy(some), count)
        assert ours[0].tobytes() == theirs[0].tobytes()
        assert ours[1].tobytes() == theirs[1].tobytes()
        assert ours[2].tobytes() == theirs[2].numpy().tobytes()


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 200), st.integers(0, 99))
def test_the_largest_are_kept_and_of_equal_ones_the_first(top, seed):
    v = normal(CHUNK, seed)
    every = keep_chunks(v, CHUNK)[1]
    indices, values, _ = keep_chunks(v, top)
    want = np.sort(np.argsort(-np.abs(every), kind="stable")[:top])
    assert (indices == want).all()
    assert (values == every[want]).all()
    assert keep_chunks(np.zeros(CHUNK, np.float32), top)[0].tolist() == list(range(top))


def test_a_momentum_that_decays():
    codec, w = Feedback(DeMo(2, decay=0.5)), np.zeros(100, np.float32)
    state = codec.start(w, 1)
    left = np.zeros(100, np.float32)
    for turn in range(4):
        change = normal(100, turn)
        w += change
        moved = w - state.b
        q = expand(codec.emit(state, 0, 100), 100)
        left = left * np.float32(0.5) + moved - q
        assert (state.r == left).all()
        assert w.tobytes() == state.b.tobytes()


@pytest.mark.parametrize("like", [np.asarray, torch.from_numpy])
def test_synchronous_rounds_take_the_sign_of_the_sum(like):
    total = like(np.array([0.5, -3.0, 0.0], np.float32))
    DeMo().conclude(total, 7.0)
    assert total.tolist() == [1.0, -1.0, 0.0]
    DeMo(sign=False).conclude(total, 7.0)
    assert total.tolist() == [1.0, -1.0, 0.0]
    assert DeMo().votes
    assert not DeMo(sign=False).votes


def test_ranges_of_every_length():
    for size in (1, 63, 64, 65, 4095, 4096, 4097, 8192, 9000):
        v = normal(size)
        compressor = DeMo(64)
        piece = compressor.compress(v, 0, CompressorState(size))
        payload = compressor.payload([piece], 0, size)
        assert expand(payload, size).tobytes() == piece.q.tobytes()
        assert np.square(piece.q - v).sum() <= compressor.facts.error * np.square(v).sum()


def test_what_is_smooth_takes_few():
    """The reason for the transform: a slow wave is a few coefficients, where top-k would need all elements."""
    rows, columns = np.mgrid[:64, :64]
    v = np.cos(0.05 * rows + 0.03 * columns).astype(np.float32).ravel()
    q = DeMo(32).compress(v, 0, CompressorState(CHUNK)).q
    assert np.square(q - v).sum() < 1e-3 * np.square(v).sum()


def test_large_numbers_are_clipped_so_that_sums_stay_finite():
    piece = DeMo(1).compress(np.full(64, 1e28, np.float32), 0, CompressorState(64))
    assert piece.body[1].tolist() == [2.0**90]
    validate(DeMo(1).payload([piece], 0, 64), 64)


def raw(top: int, indices: list[int], values: list[float], length: int = 64, zero: int = 0) -> bytes:
    parts = np.array([top, zero, *indices], np.uint16), np.array(values, np.float32)
    return build(Header(Kind.COSINES, 0.0, 0, length, length), *parts)


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (build(Header(Kind.COSINES, 0.0, 0, 64, 64)), "should have"),
        (raw(0, [], []), "0/0 coefficients"),
        (raw(4097, [0] * 64, [0.0] * 64), "4097/0"),
        (raw(1, [0], [0.0], zero=1), "1/1"),
        (raw(1, [0, 1], [0.0, 0.0]), "instead of"),
        (raw(1, [0], []), "instead of"),
        (raw(1, [64], [0.0]), "64 of 64"),
        (raw(1, [4096], [0.0], 4096), "4096 of 4096"),
        (raw(16, [5, 5], [0.0, 0.0]), "do not rise"),
        (raw(16, [6, 5], [0.0, 0.0]), "do not rise"),
        (raw(1, [0], [np.nan]), "not finite"),
        (raw(1, [0], [-np.inf]), "not finite"),
        (raw(1, [0], [1e28]), "too large"),
        (build(Header(Kind.COSINES, 0.0, 0, 64, 63), np.array([1, 0, 0, 0, 0], np.uint16)), "counts 63"),
    ],
)
def test_refused(payload, says):
    with pytest.raises(MalformedMessage, match=says):
        validate(payload, 4096)


def test_the_largest_coefficients_of_all_stay_finite():
    every = list(range(4096))
    for signs in (np.ones(4096), np.where(np.arange(4096) % 2, -1, 1)):
        assert np.isfinite(expand(raw(4096, every, signs * 2.0**90, 4096), 4096)).all()


@pytest.mark.parametrize("given", ["demo:top=0", "demo:top=5000", "demo:decay=1.5", "demo:decay=-1", "demo:sign=perhaps"])
def test_misuse(given):
    with pytest.raises(Misuse, match="expected"):
        parse(given)


def test_in_a_round_a_model_of_a_few_elements_falls_back_to_dense_and_is_summed_too():
    coder, out = VectorCodec(parse("demo"), 3), np.zeros(3, np.float32)
    payloads = [coder.encode(np.array([0.5, -2.0, 0.0], np.float32)) for _ in range(2)]
    for payload in payloads:
        assert header(payload).kind is Kind.DENSE
        coder.check(payload, 3)
    coder.total(payloads, [1.0, 1.0], out)
    assert out.tolist()[:2] == [1.0, -1.0]

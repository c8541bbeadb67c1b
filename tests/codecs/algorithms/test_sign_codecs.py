"""Sign and 1-bit: their means, their votes, and the problem that signs alone never solve."""

import math

import numpy as np
import pytest
import torch
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from taut.codecs import CompressorState, Feedback, OneBit, Sign, expand, parse, spec, validate
from taut.codecs.algorithms.onebit import fixed_runs, runs_of
from taut.codecs.math.ordered_sums import fold, magnitude_sum, square_sum
from taut.codecs.wire.layouts import LAYOUTS
from taut.codecs.wire.layouts.onebit import preamble
from taut.codecs.wire.payload import HEADER, Header, Kind, body_of, build, header
from taut.errors import MalformedMessage, Misuse
from taut.testing.checks.codec_check import check_codec

special = st.sampled_from([0.0, -0.0, 1e-45, -1e-45, 1.0, -1.0])
elements = st.floats(-(2.0**100), 2.0**100, width=32) | special
vectors = st.integers(1, 300).flatmap(lambda n: arrays(np.float32, n, elements=elements))
shapes = st.lists(st.lists(st.integers(1, 9), max_size=3).map(tuple), min_size=1, max_size=4)


def both(compressor, v: np.ndarray, tensors=()) -> bytes | None:
    """The payload, which must be the same from torch, and say what ``q`` says."""
    payload = compressor.encode(v, CompressorState(len(v), tensors))
    assert compressor.encode(torch.from_numpy(v), CompressorState(len(v), tensors)) == payload
    if payload is not None and not compressor.piece:
        q = compressor.compress(v, 0, CompressorState(len(v), tensors)).q
        there = compressor.compress(torch.from_numpy(v), 0, CompressorState(len(v), tensors)).q
        assert q.tobytes() == there.numpy().tobytes() == decoded(payload, len(v)).tobytes()
    return payload


def decoded(payload: bytes, size: int) -> np.ndarray:
    """Without adding to anything, so that the sign of zero is seen too."""
    head, values = validate(payload, size), np.full(size, np.nan, np.float32)
    for start, piece in LAYOUTS[head.kind].pieces(head, body_of(payload), 0, head.length):
        assert np.isnan(values[start : start + len(piece)]).all()
        values[start : start + len(piece)] = piece
    return values


def error_of(said: np.ndarray, v: np.ndarray) -> float:
    return float(np.sum((said.astype(np.float64) - v.astype(np.float64)) ** 2))


def squared(v: np.ndarray) -> float:
    return float(np.sum(v.astype(np.float64) ** 2))


# ------------------------------------------------------------------------------------------------------------ sums


@pytest.mark.parametrize("n", [1, 2, 3, 1023, 1024, 1025, 5000, 2**14 + 5, 2**20 + 1025])
def test_sums_are_right_and_the_same_everywhere(n):
    rng = np.random.default_rng(n)
    v = (rng.standard_normal(n) * np.exp(rng.normal(0, 9, n))).astype(np.float32)
    wide = np.abs(v.astype(np.float64))
    assert magnitude_sum(v) == magnitude_sum(torch.from_numpy(v)) == float(fold(wide))
    assert square_sum(v) == square_sum(torch.from_numpy(v)) == float(fold(wide * wide))
    assert magnitude_sum(v) == pytest.approx(math.fsum(wide), rel=1e-14)


# ------------------------------------------------------------------------------------------------------------ sign


@settings(max_examples=some(60), deadline=None)
@given(vectors)
def test_sign_sends_the_mean_magnitude_with_the_sign(v):
    payload = both(Sign(), v)
    mean = np.float32(math.fsum(np.abs(v.astype(np.float64))) / len(v))
    if payload is None:
        assert mean == 0.0
        return
    assert len(payload) == HEADER.size + -(-len(v) // 8)
    said = decoded(payload, len(v))
    assert ((said < 0) == (v < 0)).all()
    assert abs(header(payload).quantum - mean) <= np.spacing(mean)
    assert (np.abs(said) == np.float32(header(payload).quantum)).all()
    assert error_of(said, v) <= Sign().facts.error * squared(v)


def test_nothing_is_sent_where_there_is_nothing():
    assert Sign().encode(np.zeros(9, np.float32), CompressorState(9)) is None
    assert Sign().encode(torch.zeros(9), CompressorState(9)) is None
    tiny = np.zeros(9, np.float32)
    tiny[3] = 1e-45  # a ninth of it is no float32
    assert Sign().encode(tiny, CompressorState(9)) is None
    assert OneBit().encode(np.zeros(9, np.float32), CompressorState(9)) is None


def test_the_vote_is_the_majority_of_unit_votes():
    assert Sign(vote=True).votes and not Sign().votes
    for total in (np.array([3.0, -1.0, 0.0, -0.0], np.float32), torch.tensor([3.0, -1.0, 0.0, -0.0])):
        Sign(vote=True).conclude(total, 0.25)
        assert total.tolist() == [0.25, -0.25, 0.0, 0.0]
        Sign().conclude(total, 5.0)
        assert total.tolist() == [0.25, -0.25, 0.0, 0.0]


EPSILON = 0.5


def objective(x: np.ndarray) -> float:
    return EPSILON * abs(float(x[0]) + float(x[1])) + abs(float(x[0]) - float(x[1]))


def gradient(x: np.ndarray) -> np.ndarray:
    both, apart = (1.0 if x[0] + x[1] >= 0 else -1.0), (1.0 if x[0] - x[1] >= 0 else -1.0)
    return np.array([EPSILON * both + apart, EPSILON * both - apart], np.float32)


def descend(codec, steps: int = 800) -> np.ndarray:
    """Two workers on one convex function, with falling steps, through the real thing."""
    replicas = []
    for _ in range(2):
        replicas.append(codec.start(np.array([1.0, 0.7], np.float32), workers=2))
    for step in range(steps):
        sent = []
        for state in replicas:
            state.w -= np.float32(0.3 / math.sqrt(step + 1)) * gradient(state.w)
            sent.append(codec.emit(state, 0, 2))
        for state, payload in zip(replicas, reversed(sent), strict=True):
            if payload is not None:
                codec.absorb(state, payload)
    assert np.allclose(replicas[0].b, replicas[1].b, atol=1e-4)
    return replicas[0].b


def test_signs_alone_stall_on_the_counter_example_and_feedback_solves_it():
    """Karimireddy et al. 2019, counter-example 2: f(x) = e |x1 + x2| + |x1 - x2|. Every gradient has the signs (+, -) or
    (-, +), so that signs alone never change x1 + x2."""
    stalled = descend(Feedback(Sign(), keep=False))
    assert stalled.sum() == pytest.approx(1.7, abs=1e-3)
    assert objective(stalled) > 0.8
    assert objective(descend(Feedback(Sign()))) < 0.05
    assert objective(descend(parse("dense"))) < 0.05


# ---------------------------------------------------------------------------------------------------------- 1-bit


def two_means(v: np.ndarray, runs) -> np.ndarray:
    """By definition, column by column."""
    said, start = np.zeros_like(v), 0
    for columns, length in runs:
        for _ in range(columns):
            column = v[start : start + length].astype(np.float64)
            for part in (column >= 0, column < 0):
                if part.any():
                    said[start : start + length][part] = np.float32(math.fsum(column[part]) / part.sum())
            start += length
    assert start == len(v)
    return said


@settings(max_examples=60, deadline=None)
@given(shapes, st.data())
def test_onebit_sends_two_means_per_column(tensors, data):
    size = sum(math.prod(shape) for shape in tensors)
    v = data.draw(arrays(np.float32, size, elements=elements))
    payload = both(OneBit(), v, tuple(tensors))
    expected = two_means(v, runs_of(tensors))
    if payload is None:
        assert not expected.any()
        return
    said = decoded(payload, size)
    assert np.allclose(said, expected, rtol=2e-7, atol=0)  # fsum rounds once, a fold now and then
    assert error_of(said, v) <= OneBit().facts.error * squared(v)


@pytest.mark.parametrize("column", [64, 256, 2048])
@pytest.mark.parametrize("n", [7, 64, 5000, 2**17 + 77])
def test_fixed_columns_are_the_same_in_pieces_and_at_once(n, column):
    v = np.random.default_rng(n).standard_normal(n).astype(np.float32)
    payload = both(OneBit(column), v)
    assert np.allclose(decoded(payload, n), two_means(v, fixed_runs(n, column)), rtol=2e-7, atol=0)
    state = Feedback(OneBit(column)).start(v * 0, workers=1)
    state.w += v
    sent = Feedback(OneBit(column)).emit(state, 0, n)
    assert sent == payload if len(payload) <= HEADER.size + 4 * n else header(sent).kind is Kind.DENSE


def test_long_columns_are_cut():
    v = np.random.default_rng(0).standard_normal(2**20 + 9).astype(np.float32)
    payload = both(OneBit(), v)
    assert body_of(payload)[:20].view(np.uint32).tolist() == [2, 1, 2**20, 1, 9]
    assert np.allclose(decoded(payload, len(v)), two_means(v, runs_of([v.shape])), rtol=2e-7, atol=0)


def test_a_column_is_what_goes_into_one_output():
    assert runs_of([(4, 3, 3, 3), (4,), (10, 4)]) == [(4, 27), (11, 4)]
    assert OneBit().whole and not OneBit(64).whole
    assert OneBit().piece == 0 and OneBit(64).piece == 2**16 and OneBit(2**18).piece == 2**18
    weight = torch.nn.Linear(3, 2).weight  # two outputs of three inputs each
    assert runs_of([tuple(weight.shape)]) == [(2, 3)]


# ------------------------------------------------------------------------------------------- contract, and refusals


@pytest.mark.parametrize("size", [1000, 131, 64, 7])
@pytest.mark.parametrize("written", ["sign", "sign:vote=yes", "onebit:column=64"])
def test_they_keep_the_contract(written, size):
    check_codec(parse(written), size=size)


def votes(bits=(1, 2), length=12, quantum=0.5, count=None) -> bytes:
    head = Header(Kind.VOTES, quantum, 0, length, length if count is None else count)
    return build(head, np.array(bits, np.uint8))


def columns(runs=((2, 5), (1, 2)), plus=(1.0, 0.0, 2.0), minus=(-1.0, -2.0, 0.0), bits=(1, 2), length=12) -> bytes:
    head = Header(Kind.COLUMNS, 0.0, 0, length, length)
    return build(head, preamble(runs), *(np.array(each, np.float32) for each in (plus, minus)), np.array(bits, np.uint8))


GOOD = [votes(), columns()]
BAD = [
    votes(bits=(1, 16)),
    votes(bits=(1,)),
    votes(bits=(1, 2, 0)),
    votes(quantum=0.0),
    votes(quantum=-1.0),
    votes(quantum=math.inf),
    votes(count=11),
    columns(bits=(1, 16)),
    columns(bits=(1,)),
    columns(plus=(-1.0, 0.0, 0.0)),
    columns(plus=(math.inf, 0.0, 0.0)),
    columns(minus=(1.0, 0.0, 0.0)),
    columns(minus=(math.nan, 0.0, 0.0)),
    columns(plus=(1.0, 1.0)),
    columns(runs=((2, 5), (1, 3))),
    columns(runs=((2, 6), (1, 0))),
    columns(runs=((3, 4), (0, 5))),
    columns(runs=()),
    columns(runs=((1, 2**21),), plus=(1.0,), minus=(-1.0,)),
    columns(runs=((2**32 - 1, 2**20),) * 2),
    columns()[: HEADER.size + 2],
    columns()[: HEADER.size] + b"\xff" * 30,
]


def test_what_is_not_right_is_refused():
    for payload in GOOD:
        validate(payload, 20)
    for payload in BAD:
        with pytest.raises(MalformedMessage):
            validate(payload, 20)


def test_a_column_that_nobody_would_write_is_refused():
    for length in (2**20, 2**20 + 8):
        payload = columns(((1, length),), (1.0,), (-1.0,), np.zeros(length // 8, np.uint8), length)
        if length == 2**20:
            assert (expand(payload, length) == 1.0).all()
            continue
        with pytest.raises(MalformedMessage, match="beyond 1048576"):
            validate(payload, length)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(GOOD), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_ones_are_refused_or_stay_within_the_vector(payload, damages):
    raw = bytearray(payload)
    for index, value in damages:
        raw[index % len(raw)] = value
    try:
        validate(raw, 20)
    except MalformedMessage:
        return
    assert np.isfinite(expand(raw, 20)).all()


@pytest.mark.parametrize(
    "written", ["onebit:column=63", "onebit:column=100", "onebit:column=-64", "onebit:column=2^21", "sign:vote=2"]
)
def test_what_makes_no_sense_is_refused_and_quoted(written):
    with pytest.raises(Misuse) as told:
        parse(written)
    assert written.partition(":")[2].partition("=")[0] in str(told.value)


def test_all_are_written_and_read_back():
    for codec in (Feedback(Sign()), Feedback(Sign(True), keep=False), Feedback(OneBit()), Feedback(OneBit(2048))):
        assert parse(spec(codec)) == codec

"""Top-k, DGC and random-k: exactly the elements that they promise, the same for NumPy and torch."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from taut.codecs import DGC, CompressorState, Feedback, RandomK, TopK, expand, parse, spec, validate
from taut.codecs.algorithms.randomk import progression
from taut.codecs.math.topk_select import SAMPLE, largest
from taut.codecs.wire.payload import HEADER, Header, Kind, build
from taut.errors import MalformedMessage, Misuse
from taut.testing.checks.codec_check import check_codec

floats = st.floats(-(2.0**100), 2.0**100, width=32)
with_ties = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 3.0, 3.0000002])
vectors = st.integers(1, 300).flatmap(lambda n: arrays(np.float32, n, elements=floats | with_ties))


def sorted_choice(v: np.ndarray, k: int) -> list[int]:
    """By sorting, which is what the fast way must give."""
    order = np.argsort(-np.abs(v.astype(np.float64)), kind="stable")[:k]
    return sorted(order[v[order] != 0].tolist())


def chosen(v: np.ndarray, k: int) -> list[int]:
    indices, values = largest(v, k)
    there, others = largest(torch.from_numpy(v), k)
    assert indices.tolist() == there.tolist()
    assert values.tobytes() == v[indices].tobytes() == others.numpy().tobytes()
    return indices.tolist()


def both(compressor, v: np.ndarray, **memory) -> bytes | None:
    """The payload, which must be the same from torch, and say what ``q`` says."""
    first, second = CompressorState(len(v), **memory), CompressorState(len(v), **memory)
    payload = compressor.encode(v, first)
    assert compressor.encode(torch.from_numpy(v), second) == payload
    piece = compressor.compress(v, 0, CompressorState(len(v), **memory))
    if piece is None:
        assert payload is None
        return None
    dense = np.zeros(len(v), np.float32)
    dense[piece.indices] += piece.q
    assert expand(payload, len(v)).tobytes() == dense.tobytes()
    return payload


@settings(max_examples=60, deadline=None)
@given(vectors, st.integers(1, 320))
def test_the_largest_are_those_that_sorting_gives(v, k):
    assert chosen(v, k) == sorted_choice(v, k)


def periodic(rng, n):
    """All that is large lies between the places that the sample looks at: it says nothing."""
    v = rng.standard_normal(n, np.float32)
    v[:: n // SAMPLE] = 0.0
    return v


def peaks(rng, n):
    """All that is large lies where the sample looks: it says far too much."""
    v = rng.standard_normal(n, np.float32) * np.float32(1e-3)
    v[:: n // SAMPLE] += 5.0
    return v


LARGE = {
    "normal": lambda rng, n: rng.standard_normal(n, np.float32),
    "ties": lambda rng, n: rng.integers(-3, 4, n).astype(np.float32),
    "rare": lambda rng, n: np.where(rng.random(n) < 1e-4, 1.0, 0.0).astype(np.float32),
    "empty": lambda rng, n: np.zeros(n, np.float32),
    "periodic": periodic,
    "peaks": peaks,
}


@pytest.mark.parametrize("name", LARGE)
def test_of_many_too_whatever_the_sample_says(name):
    n = 5 * SAMPLE + 3
    v = LARGE[name](np.random.default_rng(1), n)
    for k in (1, n // 1000, n // 20):
        assert chosen(v, k) == sorted_choice(v, k)


@settings(max_examples=60, deadline=None)
@given(vectors, st.floats(0.001, 1.0))
def test_topk_keeps_its_bound(v, density):
    compressor = TopK(density)
    payload = both(compressor, v)
    said = np.zeros(len(v)) if payload is None else expand(payload, len(v)).astype(np.float64)
    wide = v.astype(np.float64)
    k = max(1, math.ceil(density * len(v)))
    assert np.sum((said - wide) ** 2) <= (1 - k / len(v)) * np.sum(wide**2) * (1 + 1e-9)
    assert 1 - k / len(v) <= compressor.facts.error


# ------------------------------------------------------------------------------------------------------------- DGC


def dgc_step(r, u, g, k, momentum):
    """The paper's, element by element."""
    u[:] = u * np.float32(momentum) + g
    r += u
    indices = sorted_choice(r, k)
    sent = {index: float(r[index]) for index in indices}
    r[indices], u[indices] = 0.0, 0.0
    return sent


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_dgc_corrects_the_momentum_and_masks_what_was_sent(kind):
    rng, n = np.random.default_rng(0), 200
    codec = Feedback(DGC(0.02, momentum=0.75, warmup=0))
    w = np.zeros(n, np.float32)
    state = codec.start(w if kind == "numpy" else torch.from_numpy(w), workers=1)
    r, u = np.zeros(n, np.float32), np.zeros(n, np.float32)
    for _ in range(20):
        before = np.asarray(state.b).copy()
        w += np.round(rng.standard_normal(n), 2).astype(np.float32)
        g = w - before
        sent = dgc_step(r, u, g, 4, 0.75)
        dense = expand(codec.emit(state, 0, n), n)
        assert {int(index): float(dense[index]) for index in np.flatnonzero(dense)} == sent
        assert np.asarray(state.r).tobytes() == r.tobytes()
        assert np.asarray(state.memory.kept["u"]).tobytes() == u.tobytes()


def test_dgc_without_momentum_and_warmup_is_topk():
    one, other = Feedback(DGC(0.1, momentum=0.0, warmup=0)), Feedback(TopK(0.1))
    rng = np.random.default_rng(2)
    v, w = np.zeros(96, np.float32), np.zeros(96, np.float32)
    states = one.start(v, 2), other.start(w, 2)
    for _ in range(5):
        step = rng.standard_normal(96, np.float32)
        v += step
        w += step
        assert one.emit(states[0], 0, 96) == other.emit(states[1], 0, 96)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_dgc_clips_what_comes_in(kind):
    n, workers, clip = 3000, 4, 0.5
    change = np.random.default_rng(3).standard_normal(n).astype(np.float32)
    like = (lambda x: x) if kind == "numpy" else torch.from_numpy
    for factor, clipped in ((1.0, True), (1e-4, False)):
        r, memory = like(np.zeros(n, np.float32)), CompressorState(n, workers=workers)
        DGC(0.1, clip=clip).grow(r, like(change * np.float32(factor)), 0, memory)
        norm = float(np.linalg.norm(np.asarray(r).astype(np.float64)))
        assert norm == pytest.approx(clip / math.sqrt(workers), rel=1e-6) if clipped else norm < 0.1
        direction = np.asarray(r).astype(np.float64) / norm
        assert direction @ change == pytest.approx(np.linalg.norm(change.astype(np.float64)), rel=1e-6)


def test_dgc_gives_the_same_bytes_for_torch_with_everything_on():
    rng, codec = np.random.default_rng(4), Feedback(DGC(0.01, clip=1.0, warmup=6))
    one, other = np.zeros(500, np.float32), np.zeros(500, np.float32)
    states = codec.start(one, 3), codec.start(torch.from_numpy(other), 3)
    for _ in range(10):
        step = rng.standard_normal(500, np.float32)
        one += step
        other += step
        assert codec.emit(states[0], 0, 500) == codec.emit(states[1], 0, 500)


def test_dgc_warms_up_at_the_same_pace_in_fragments():
    n, codec = 6400, Feedback(DGC(0.001, warmup=8))
    assert DGC(0.001, warmup=4).density_at(0) == 0.25
    assert [round(100 * DGC(0.0009765625, warmup=4).density_at(i), 2) for i in range(5)] == [25, 6.25, 1.56, 0.39, 0.1]
    assert DGC(0.5).density_at(0) == 0.5
    counts = []
    for fragments in (1, 4):
        w = np.zeros(n, np.float32)
        state, size, sent = codec.start(w, 1), n // fragments, []
        for update in range(10):
            w += np.random.default_rng(update).standard_normal(n, np.float32)
            payloads = [codec.emit(state, lo, lo + size) for lo in range(0, n, size)]
            sent.append(sum(validate(payload, n).count for payload in payloads))
        counts.append(sent)
    assert counts[0][0] == n // 4 and counts[0][8] == math.ceil(0.001 * n)
    at_once, in_fragments = counts
    for update in range(9):  # the density falls from fragment to fragment, by as much as from update to update
        assert at_once[update + 1] <= in_fragments[update] <= at_once[update] + 4


# -------------------------------------------------------------------------------------------------------- random-k


@settings(max_examples=60, deadline=None)
@given(vectors, st.floats(0.001, 1.0), st.integers(0, 2**63), st.integers(0, 9), st.booleans())
def test_randomk_sends_elements_as_they_are_at_places_that_do_not_repeat(v, density, seed, turns, scale):
    compressor = RandomK(density, scale)
    payload = both(compressor, v, seed=seed, turns=turns)
    k = max(1, math.ceil(density * len(v)))
    if payload is None:
        return
    assert len(payload) == HEADER.size + 16 + 4 * k
    said, times = expand(payload, len(v)), np.float32(len(v) / k) if scale else np.float32(1.0)
    assert ((said == v * times) | (said == 0.0)).all()
    assert np.count_nonzero(said) <= k
    piece = compressor.compress(v, 0, CompressorState(len(v), seed=seed, turns=turns))
    assert len(set(piece.indices.tolist())) == k


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 10**6), st.integers(0, 2**64), st.integers(0, 10**6), st.integers(0, 2**40))
def test_every_progression_goes_through_all_elements(length, seed, turn, lo):
    start, stride = progression(seed, turn, lo, length)
    assert 0 <= start < length and 1 <= stride <= length and math.gcd(stride, length) == 1


def test_randomk_is_right_on_average_and_as_far_off_as_it_says():
    n, rounds = 30, 6000
    v = np.random.default_rng(5).standard_normal(n).astype(np.float32)
    compressor = RandomK(0.2, scale=True)
    said = np.array(
        [expand(compressor.encode(v, CompressorState(n, seed=seed)), n) for seed in range(rounds)], np.float64
    )
    deviation = np.abs(v) * math.sqrt(compressor.facts.error / rounds)
    assert (np.abs(said.mean(0) - v) < 5 * deviation).all()
    errors = ((said - v) ** 2).sum(1)
    wide = np.sum(v.astype(np.float64) ** 2)
    assert abs(errors.mean() - compressor.facts.error * wide) < 5 * errors.std() / math.sqrt(rounds)
    assert compressor.facts.unbiased and not RandomK(0.2).facts.unbiased


def test_randomk_follows_from_seed_turn_and_place():
    v = np.random.default_rng(6).standard_normal(1000).astype(np.float32)
    indices = {
        tuple(RandomK(0.01).compress(v, lo, CompressorState(4096, seed=seed, turns=turns)).indices.tolist())
        for seed, turns, lo in [(0, 0, 0), (0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 64)]
    }
    assert len(indices) == 4


# ------------------------------------------------------------------------------------------- contract, and refusals


SPARSE = ["topk:density=0.05", "dgc:warmup=3,clip=0.1", "randomk", "randomk:scale=yes,feedback=no"]


@pytest.mark.parametrize("size", [1000, 131, 64, 7])
@pytest.mark.parametrize("written", SPARSE)
def test_they_keep_the_contract(written, size):
    check_codec(parse(written), size=size)


def seeded(start=3, stride=7, count=4, length=50, values=(1.0, 2.0, 3.0, 4.0)) -> bytes:
    preamble = np.array([start, stride], np.uint64)
    return build(Header(Kind.SEEDED, 0.0, 0, length, count), preamble, np.array(values, np.float32))


def sparse(indices, values, length=50, count=None) -> bytes:
    head = Header(Kind.SPARSE, 0.0, 0, length, len(indices) if count is None else count)
    return build(head, np.array(indices, np.uint32), np.array(values, np.float32))


GOOD = [seeded(), seeded(stride=51 - 2), seeded(stride=1, start=49), sparse([0, 49], [1.0, -1.0])]
BAD = [
    seeded(start=50),
    seeded(stride=0),
    seeded(stride=10),
    seeded(stride=57),
    seeded(start=2**64 - 1),
    seeded(stride=2**64 - 1),
    seeded(values=(1.0, math.nan, 1.0, 1.0)),
    seeded(count=3),
    seeded(count=0, values=()),
    seeded(length=3),
    seeded()[: HEADER.size + 9],
    sparse([0, 50], [1.0, 1.0]),
    sparse([3, 3], [1.0, 1.0]),
    sparse([4, 3], [1.0, 1.0]),
    sparse([3, 4], [1.0, math.inf]),
    sparse([3, 4], [1.0, 1.0], count=3),
]


def test_what_is_not_right_is_refused():
    for payload in GOOD:
        validate(payload, 60)
    for payload in BAD:
        with pytest.raises(MalformedMessage):
            validate(payload, 60)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(GOOD), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4))
def test_damaged_ones_are_refused_or_stay_within_the_vector(payload, damages):
    raw = bytearray(payload)
    for index, value in damages:
        raw[index % len(raw)] = value
    try:
        validate(raw, 60)
    except MalformedMessage:
        return
    assert np.isfinite(expand(raw, 60)).all()


@pytest.mark.parametrize(
    "written",
    [
        "topk:density=0",
        "randomk:density=1.5",
        "dgc:density=-1",
        "dgc:momentum=1",
        "dgc:clip=-1",
        "dgc:warmup=-1",
        "dgc:warmup=1.5",
        "randomk:scale=maybe",
        "dgc:momentun=0.9",
    ],
)
def test_what_makes_no_sense_is_refused_and_quoted(written):
    with pytest.raises(Misuse) as told:
        parse(written)
    assert written.partition(":")[2].partition("=")[0] in str(told.value)


def test_all_are_written_and_read_back():
    for codec in (Feedback(TopK(0.001)), Feedback(DGC(0.01, 0.5, 2.0, 7)), Feedback(RandomK(0.5, True), keep=False)):
        assert parse(spec(codec)) == codec

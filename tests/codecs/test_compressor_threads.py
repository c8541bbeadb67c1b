"""Every codec writes and reads the same bits on any number of threads."""

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs import REGISTRY, CompressorState, parallel, parse, validate
from taut.codecs.compressor import CompressedPiece, in_pieces
from taut.codecs.math.topk_select import largest
from taut.errors import MalformedMessage, NonFiniteUpdate

LEAST = 1 << 15  # so that small vectors are cut, too
PIECE = 1 << 16
MORE = ("dgc:density=0.3,warmup=0", "onebit:column=64", "randomk:density=0.5", "sign:vote=yes", "topk:density=0.3")
FIXED = {"tether": "tether:slack=2^-6", "threshold": "threshold:tau=2^-6"}  # limits that are not steered
SPECS = (*(FIXED.get(name, name) for name in REGISTRY), *MORE)
SPARSE = ("tether", "threshold", "topk", "chunked", "dgc", "randomk")  # decoding is a matter of a few elements


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch):
    monkeypatch.setattr(parallel, "LEAST", LEAST)
    yield
    parallel.set_threads(1)


def shapes_of(size):
    return [(size // 100, 100), (size % 100,)] if size % 100 else [(size // 100, 100)]


def trained(spec, threads, size, seed):
    """Two updates of one worker, taken in by another: their payloads, and everything that both of them keep."""
    rng = np.random.default_rng(seed)
    parallel.set_threads(threads)
    codec, w, other = parse(spec), np.zeros(size, np.float32), np.zeros(size, np.float32)
    state = codec.start(w, 3, shapes=shapes_of(size), seed=seed)
    there = codec.start(other, 3, shapes=shapes_of(size))
    payloads = []
    for scale in (0.005, 0.3):
        w += rng.standard_normal(size, np.float32) * np.float32(scale)  # few signs first, then a bitmap of them
        w[rng.integers(size, size=size // 4)] = w[0]  # equal ones
        payloads.append(codec.emit(state, 0, size))
        if payloads[-1] is not None:
            codec.absorb(there, payloads[-1])
    held = [w, other, state.b, there.b, state.r, *(state.memory.kept.values() if state.memory else ())]
    return payloads, [None if vector is None else vector.tobytes() for vector in held]


seams = st.builds(lambda pieces, more: pieces * PIECE + more, st.integers(1, 3), st.sampled_from([-1, 0, 1, 64, 4097]))
sizes = st.one_of(seams, st.integers(2 * LEAST - 70, 2 * LEAST + 70), st.integers(100, 4 * PIECE))


@settings(max_examples=some(40), deadline=None)
@given(st.sampled_from(SPECS), sizes, st.integers(0, 2**32 - 1))
def test_the_number_of_threads_changes_nothing(spec, size, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "LEAST", LEAST)
        one = trained(spec, 1, size, seed)
        assert trained(spec, 2, size, seed) == one
        assert trained(spec, 3, size, seed) == one


@pytest.fixture
def most(monkeypatch):
    """How many parts anything was cut into, at most; set to 0 to begin anew."""
    seen, plain = {"parts": 0}, parallel.run_tasks

    def run_tasks(work, tasks):
        seen["parts"] = max(seen["parts"], len(tasks))
        return plain(work, tasks)

    for module in ("parallel", "wire.sign_list"):
        monkeypatch.setattr(f"taut.codecs.{module}.run_tasks", run_tasks)
    return seen


@pytest.mark.parametrize("spec", SPECS)
def test_every_codec_uses_the_threads(spec, most):
    parallel.set_threads(3)
    size = 4 * PIECE
    codec, rng = parse(spec), np.random.default_rng(0)
    w, other = np.zeros(size, np.float32), np.zeros(size, np.float32)
    state, there = (codec.start(vector, 1, shapes=[(512, 512)]) for vector in (w, other))
    w += rng.standard_normal(size, np.float32) * np.float32(2**-8)
    payload = codec.emit(state, 0, size)
    assert most["parts"] == 3
    most["parts"] = 0
    codec.absorb(there, payload)
    assert most["parts"] == (0 if spec.startswith(SPARSE) else 3)


def test_small_updates_are_not_cut(most):
    parallel.set_threads(3)
    for spec in REGISTRY:
        trained(spec, 3, 2000, seed=0)
    assert most["parts"] == 1


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4 * LEAST), st.integers(0, 3), st.floats(0.0, 1.0), st.integers(2, 5))
def test_equal_ones_are_the_first_on_any_number_of_threads(size, distinct, share, threads):
    """Of few distinct magnitudes, so that the k-th has many equals, in every part."""
    rng = np.random.default_rng(size)
    v = rng.integers(-distinct, distinct + 1, size).astype(np.float32)
    k = max(1, int(share * size))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "LEAST", 512)
        parallel.set_threads(threads)
        indices, values = largest(v, k)
    expected = np.sort(np.argsort(-np.abs(v), kind="stable")[:k])
    assert indices.tolist() == expected[v[expected] != 0].tolist()
    assert (v[indices] == values).all()


def test_a_part_is_not_cut_again():
    """Its thread would wait for others that may wait for it."""
    parallel.set_threads(2)
    inner = parallel.run_parts(lambda start, stop: parallel.split(0, 100 * LEAST), 0, 2 * LEAST)
    assert inner == [[(0, 100 * LEAST)]] * 2
    assert len(parallel.split(0, 100 * LEAST)) == 2


def test_the_first_error_is_the_one_that_is_told():
    parallel.set_threads(3)
    for spec in ("int8", "fp8", "bf16", "topk", "dgc"):
        codec, w = parse(spec), np.zeros(4 * PIECE, np.float32)
        state = codec.start(w, 1)
        w[[70_000, 150_000, 4 * PIECE - 1]] = [np.nan, np.inf, np.nan]
        with pytest.raises(NonFiniteUpdate, match="element 70000 "):
            codec.emit(state, 0, w.size)


@pytest.mark.parametrize("spec", ["dense", "fp16", "bf16", "int8", "fp8"])
def test_a_wrong_number_is_refused_in_any_part(spec):
    """All bits of the last number set: NaN, or the one number of a width that means nothing."""
    codec, w = parse(spec), np.zeros(4 * PIECE, np.float32)
    state = codec.start(w, 1)
    w += 1.0
    payload = codec.emit(state, 0, w.size)
    wrong = payload[:-4] + (b"\x80" if spec == "int8" else b"\xff") * 4
    for threads in (1, 3):
        parallel.set_threads(threads)
        validate(payload, w.size)
        with pytest.raises(MalformedMessage):
            validate(wrong, w.size)


def test_pieces_keep_their_order():
    parallel.set_threads(3)
    found = in_pieces(lambda start, stop: CompressedPiece((), None, elements=start), 64, 10 * LEAST, 1024)
    assert [piece.elements for piece in found] == list(range(64, 10 * LEAST, 1024))


def test_differences_are_cut_too(most):
    v = np.random.default_rng(1).standard_normal(3 * PIECE, np.float32)
    alone = {spec: parse(spec).compressor.encode(v, CompressorState(v.size)) for spec in ("qsgd", "terngrad", "demo")}
    parallel.set_threads(2)
    for spec, payload in alone.items():
        most["parts"] = 0
        assert parse(spec).compressor.encode(v, CompressorState(v.size)) == payload
        assert most["parts"] == 2

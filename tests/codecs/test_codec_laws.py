"""The laws of the codecs: what is sent adds up, whatever the order."""

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs import REGISTRY, Tether, Threshold, merge, parse, snap
from taut.codecs.wire.payload import Kind, header
from taut.testing.checks.codec_check import check_codec, check_scenario

SPECS = [
    "tether",
    "tether:slack=2^-7",
    "tether:tau=2^-9",
    "tether:density=1",
    "tether:density=0.05,gain=1",
    "threshold",
    "threshold:tau=2^-9",
    "threshold:density=1",
    "threshold:tau=2^-9,gain=2,lead=4",
    "dense",
    "fp16",
    "bf16",
    "int8",
    "fp8",
    "onebit",
    "sign",
    "qsgd",
    "terngrad",
    "topk:density=0.05",
    "chunked:density=0.05",
    "dgc:density=0.05",
    "randomk:density=0.05",
    "powersgd",
    "demo",
]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("size", "workers"), [(1000, 3), (131, 5), (64, 1), (7, 2)])
def test_conforms(spec, size, workers):
    check_scenario(parse(spec), size=size, workers=workers)


def test_every_codec_is_held_to_the_laws():
    assert {parse(spec).name for spec in SPECS} == set(REGISTRY)


seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=some(40), deadline=None)
@given(seeds, st.integers(1, 6), st.sampled_from(["tether:slack=2^-7", "threshold:tau=2^-9", "tether"]))
def test_replicas_agree_to_the_last_bit_in_any_order(seed, workers, spec):
    check_codec(parse(spec), size=200, workers=workers, steps=9, seed=seed)


@settings(max_examples=60, deadline=None)
@given(seeds, st.sampled_from([1, 2, 4, 8]), st.integers(1, 300))
def test_threshold_residual_law(seed, workers, size):
    """Accumulated = sent + left, exactly, where the changes are on a grid."""
    rng = np.random.default_rng(seed)
    codec, w = Threshold(tau=2**-6), np.zeros(size, np.float32)
    state = codec.start(w, workers, snap(w, [size]))
    accumulated = np.zeros(size)
    for _ in range(10):
        step = rng.integers(-300, 301, size) * 2.0**-12
        w += step.astype(np.float32)
        accumulated += step / workers
        codec.emit(state, 0, size)
        assert w.tobytes() == state.b.tobytes()  # only what was sent is applied
    assert (accumulated == state.b.astype(np.float64) + state.r).all()


@settings(max_examples=60, deadline=None)
@given(seeds, st.integers(1, 9), st.integers(1, 300))
def test_tether_sends_one_quantum_where_taut_and_shortens_the_stray_by_the_slack(seed, workers, size):
    rng = np.random.default_rng(seed)
    codec, w = Tether(slack=2**-6), np.zeros(size, np.float32)
    state = codec.start(w, workers, snap(w, [size]))
    w += (rng.integers(-200, 201, size) * 2.0**-12).astype(np.float32)
    stray = w.copy()
    payload = codec.emit(state, 0, size)
    taut = np.abs(stray) >= 2**-6
    assert (header(payload).count if payload else 0) == taut.sum() == state.words_sent
    assert (state.b == np.sign(stray) * taut * np.float32(state.quantum)).all()
    assert (w - state.b == stray - np.sign(stray) * taut * np.float32(2**-6)).all()
    assert state.quantum == pytest.approx(2**-6 / np.sqrt(workers), rel=1 / 8)


def test_arrivals_move_both_and_keep_the_stray():
    codec, w = Tether(slack=2**-6), np.zeros(128, np.float32)
    state = codec.start(w, 4)
    w[3] = 2**-8
    other_w = np.zeros(128, np.float32)
    other = codec.start(other_w, 4)
    other_w[3] = 2**-5
    codec.absorb(state, codec.emit(other, 0, 128))
    assert state.b[3] == 2**-7
    assert w[3] - state.b[3] == 2**-8


@pytest.mark.parametrize("spec", ["tether:slack=2^-6", "threshold:tau=2^-6"])
@pytest.mark.parametrize("size", [1, 63, 64, 65, 1000, 4100])
@pytest.mark.parametrize("share", [0.001, 0.05, 0.0625, 0.1, 1.0])
def test_words_and_bitmap_say_the_same(spec, size, share):
    """One scan as words, many small ones, or a bitmap: the receiver ends with the sender's b."""
    rng = np.random.default_rng(size)
    codec, w, w2 = parse(spec), np.zeros(size, np.float32), np.zeros(size, np.float32)
    state, receiver = codec.start(w, 1), codec.start(w2, 1)
    hot = rng.permutation(size)[: max(1, int(share * size))]
    w[hot] = rng.choice([-1.0, 1.0], len(hot)) * 2**-6
    payload = codec.emit(state, 0, size)
    head = header(payload)
    assert head.kind in ((Kind.BITMAP,) if 16 * len(hot) > size else (Kind.RICE, Kind.WORDS))
    assert head.count == len(hot)
    codec.absorb(receiver, payload)
    assert receiver.b.tobytes() == state.b.tobytes()
    assert (np.flatnonzero(state.b) == np.sort(hot)).all()


def test_a_full_buffer_goes_on_as_a_bitmap():
    """More than one in 16, all at the end of the range or all at its start: nothing is lost where the kind
    changes."""
    for hot in (slice(0, 600), slice(3000, 4000), slice(0, 4000)):
        codec, w = Tether(slack=2**-6), np.zeros(4000, np.float32)
        state, receiver = codec.start(w, 1), codec.start(np.zeros(4000, np.float32), 1)
        w[hot] = -(2**-6)
        payload = codec.emit(state, 0, 4000)
        assert header(payload).kind is Kind.BITMAP
        codec.absorb(receiver, payload)
        assert receiver.b.tobytes() == state.b.tobytes() == w.tobytes()


@pytest.mark.parametrize("spec", ["tether", "tether:slack=2^-5", "threshold:tau=2^-7", "threshold"])
def test_flush_leaves_less_than_the_limit(spec):
    rng = np.random.default_rng(0)
    codec, w = parse(spec), np.zeros(5000, np.float32)
    state = codec.start(w, 4, snap(w, [5000]))
    for _ in range(30):
        w += rng.standard_normal(5000, np.float32) * np.float32(0.01)
        codec.emit(state, 0, 5000)
    w += rng.standard_normal(5000, np.float32) * np.float32(8 * state.limit)  # a step that no scan has seen yet
    payloads = codec.flush(state)
    left = w - state.b if state.r is None else state.r
    assert payloads
    assert np.abs(left).max() < state.limit or len(payloads) >= 8


@pytest.mark.parametrize("spec", ["tether", "threshold"])
def test_flush_of_a_run_too_short_to_have_sent_anything(spec):
    codec, w = parse(spec), np.zeros(500, np.float32)
    state, receiver = codec.start(w, 1), codec.start(np.zeros(500, np.float32), 1)
    assert codec.flush(state) == []
    w += np.random.default_rng(0).standard_normal(500, np.float32)
    assert codec.emit(state, 0, 500) is None
    before = np.abs(w if state.r is None else state.r).max()
    for payload in codec.flush(state):
        codec.absorb(receiver, payload)
    left = w - state.b if state.r is None else state.r
    assert np.abs(left).max() < before / 4
    assert receiver.b.tobytes() == state.b.tobytes()


def test_dense_flush_sends_the_last_change():
    codec, w = parse("dense"), np.zeros(100, np.float32)
    state, receiver = codec.start(w, 2), codec.start(np.zeros(100, np.float32), 2)
    w += 1.0
    for payload in codec.flush(state):
        codec.absorb(receiver, payload)
    assert (receiver.b == 0.5).all()
    assert codec.flush(state) == []


def test_slack_is_held_as_workers_come_and_go():
    codec, w = Tether(slack=2**-6), np.zeros(64, np.float32)
    state = codec.start(w, 4)
    assert (state.limit, state.tau, state.quantum) == (2**-6, 2**-8, 2**-7)
    codec.retune(state, 16, 1.0)
    assert (state.limit, state.tau, state.quantum) == (2**-6, 2**-10, 2**-8)
    fixed_tau = Tether(tau=2**-8)
    state = fixed_tau.start(w, 4)
    fixed_tau.retune(state, 8, 1.0)
    assert state.limit == 2**-6


def test_gain_shrinks_with_staleness_and_never_exceeds_the_workers():
    codec = Tether()
    gains = [codec.gain_at(16, staleness) for staleness in (0, 1, 2, 4, 8, 100)]
    assert gains[0] == gains[1] == 4.0
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] > 0.0
    assert codec.gain_at(1, 0.0) == 1.0
    assert Tether(gain=50.0).gain_at(4, 0.0) == 4.0
    state = Tether(slack=2**-6).start(np.zeros(64, np.float32), 4)
    Tether(slack=2**-6).retune(state, 4, 4.0)
    assert (state.limit, state.quantum) == (2**-6, 2**-8)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_merge_law(data):
    """absorb(merge(xs)) = absorb each, bit for bit, over kinds, ranges and quanta."""
    size = data.draw(st.sampled_from([64, 500, 3000]))
    rng = np.random.default_rng(data.draw(seeds))
    payloads = []
    for _ in range(data.draw(st.integers(1, 6))):
        workers = data.draw(st.sampled_from([1, 2, 3, 4, 7]))
        codec, w = Tether(slack=2.0 ** data.draw(st.integers(-9, -5))), np.zeros(size, np.float32)
        state = codec.start(w, workers)
        hot = rng.random(size) < data.draw(st.sampled_from([0.002, 0.05, 0.5]))
        w += np.where(hot, rng.choice([-1.0, 1.0], size), 0.0).astype(np.float32)
        lo = 64 * data.draw(st.integers(0, size // 64 - 1)) if size > 64 else 0
        payload = codec.emit(state, lo, size)
        if payload is not None:
            payloads.append(payload)
    if not payloads:
        return
    codec = Tether()
    one, other = (codec.start(np.zeros(size, np.float32), 1) for _ in range(2))
    for payload in payloads:
        codec.absorb(one, payload)
    merged = merge(payloads)
    codec.absorb(other, merged)
    assert one.b.tobytes() == other.b.tobytes()
    assert one.w.tobytes() == other.w.tobytes()
    assert len(merged) <= max(28 + 4 * header(merged).length, *map(len, payloads))
    assert merge([merged]) == merged
    half = len(payloads) // 2
    nested = merge([merge(payloads[:half] or payloads), *payloads[half if half else len(payloads) :]])
    third = codec.start(np.zeros(size, np.float32), 1)
    codec.absorb(third, nested)
    assert third.b.tobytes() == one.b.tobytes()


@pytest.mark.parametrize(("spec", "bound"), [("tether", 1.5), ("threshold", 2.5), ("tether:slack=2^-8", 1.5)])
def test_memory_held(spec, bound):
    """Vectors held beside w, whatever the number of peers."""
    w = np.zeros(100_000, np.float32)
    for workers in (1, 64):
        state = parse(spec).start(w, workers)
        arrays = [x for x in vars(state).values() if isinstance(x, np.ndarray) and x is not w]
        held = sum((x if x.base is None else x.base).nbytes for x in arrays)
        assert held <= bound * w.nbytes
        assert state.held_nbytes == pytest.approx(held, rel=0.1)


def test_only_the_scanned_range_is_touched():
    for spec in ("tether:slack=2^-6", "threshold:tau=2^-8", "dense"):
        codec, w = parse(spec), np.zeros(256, np.float32)
        state = codec.start(w, 2)
        w += 1.0
        assert codec.emit(state, 64, 128) is not None
        assert (w[:64] == 1.0).all()
        assert (w[128:] == 1.0).all()
        assert not state.b[:64].any()
        assert not state.b[128:].any()
        assert codec.emit(state, 64, 64) is None

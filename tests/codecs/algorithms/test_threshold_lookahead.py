"""Threshold with a gain and a lead: what goes into the residual, and that nothing else is changed by them."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs import Threshold, parse, snap
from taut.errors import Misuse
from taut.worker.checkpoints.reflect import recall, remembered

seeds = st.integers(0, 2**32 - 1)


def steps_of(rng: np.random.Generator, size: int) -> np.ndarray:
    return (rng.integers(-300, 301, size) * 2.0**-12).astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(
    seeds,
    st.sampled_from([1, 2, 4, 8]),
    st.integers(1, 300),
    st.sampled_from([0.5, 1.0, 2.0]),
    st.sampled_from([0.0, 1.0, 4.0]),
)
def test_residual_law(seed, workers, size, gain, lead):
    """sent + left = g / p (the sum of all changes + lead times the last one), exactly, where changes are on a grid."""
    rng = np.random.default_rng(seed)
    codec, w = Threshold(tau=2**-6, gain=gain, lead=lead), np.zeros(size, np.float32)
    state = codec.start(w, workers, snap(w, [size]))
    total, step = np.zeros(size), np.zeros(size, np.float32)
    for _ in range(10):
        step = steps_of(rng, size)
        w += step
        total += step
        codec.emit(state, 0, size)
        assert w.tobytes() == state.b.tobytes()
    expected = gain / workers * (total + lead * step)
    assert (state.b.astype(np.float64) + state.r == expected).all()
    codec.flush(state)
    assert (state.b.astype(np.float64) + state.r == expected).all()  # nothing is ahead of the end


def test_without_either_it_is_the_papers_form():
    plain, same = parse("threshold:tau=2^-6"), parse("threshold:tau=2^-6,gain=1,lead=0")
    states = []
    for codec in (plain, same):
        rng, w = np.random.default_rng(1), np.zeros(500, np.float32)
        state = codec.start(w, 3)
        payloads = []
        for _ in range(5):
            w += steps_of(rng, 500)
            payloads.append(codec.emit(state, 0, 500))
        assert state.before is None
        states.append((payloads, state.r.tobytes()))
    assert states[0] == states[1]


@settings(max_examples=20, deadline=None)
@given(seeds, st.integers(1, 700))
def test_numpy_and_torch_give_the_same_bits(seed, size):
    codec = parse("threshold:tau=2^-6,gain=1.7,lead=3.3")
    rng, w = np.random.default_rng(seed), np.zeros(size, np.float32)
    v = torch.zeros(size)
    state, twin = codec.start(w, 3), codec.start(v, 3)
    for _ in range(4):
        step = rng.normal(0, 0.05, size).astype(np.float32)
        w += step
        v += torch.from_numpy(step)
        assert codec.emit(state, 0, size) == codec.emit(twin, 0, size)
    assert state.r.tobytes() == twin.r.numpy().tobytes()
    assert state.before.tobytes() == twin.before.numpy().tobytes()


def test_fragments_keep_what_was_before_for_themselves():
    """An element's lead is by its own scans: scanned in two halves after every step, all is as in one piece."""
    codec, results = parse("threshold:tau=2^-6,lead=4"), []
    for cuts in ([0, 512], [0, 128, 512]):
        rng, w = np.random.default_rng(5), np.zeros(512, np.float32)
        state = codec.start(w, 2)
        for _ in range(6):
            w += steps_of(rng, 512)
            for lo, hi in pairwise(cuts):
                codec.emit(state, lo, hi)
        results.append((state.b.tobytes(), state.r.tobytes(), state.before.tobytes()))
    assert results[0] == results[1]


def test_a_steered_one_takes_its_lead_once_per_step():
    """Also in the step in which the first tau is found, after which it scans again."""
    codec, rng, w = parse("threshold:density=0.05,lead=4"), np.random.default_rng(2), np.zeros(4096, np.float32)
    state = codec.start(w, 1, snap(w, [4096]))
    total, step = np.zeros(4096), np.zeros(4096, np.float32)
    for _ in range(12):
        step = steps_of(rng, 4096)
        w += step
        total += step
        codec.emit(state, 0, 4096)
    assert state.limit > 0.0
    assert (state.b.astype(np.float64) + state.r == total + 4 * step).all()


def test_who_adopts_a_state_has_nothing_behind_it():
    codec, w = parse("threshold:tau=2^-6,lead=4"), np.ones(64, np.float32)
    state = codec.start(w, 2)
    w += 0.01
    codec.emit(state, 0, 64)
    assert state.before.any()
    codec.adopt(state, np.zeros(64, np.float32))
    assert not state.before.any() and not state.r.any()


def test_a_checkpoint_keeps_it():
    codec, w = parse("threshold:tau=2^-6,lead=4"), np.zeros(64, np.float32)
    state = codec.start(w, 2)
    w += 0.01
    codec.emit(state, 0, 64)
    tensors: dict[str, torch.Tensor] = {}
    kept = remembered(state, tensors)
    fresh = codec.start(np.zeros(64, np.float32), 2)
    recall(fresh, kept, tensors.__getitem__)
    assert fresh.before.tobytes() == state.before.tobytes()


@pytest.mark.parametrize("given", ["gain=0", "gain=-1", "gain=inf", "lead=-1", "lead=nan", "lead=inf"])
def test_settings_that_make_no_sense_are_refused(given):
    with pytest.raises(Misuse, match=r"threshold: (gain|lead)="):
        parse(f"threshold:{given}")

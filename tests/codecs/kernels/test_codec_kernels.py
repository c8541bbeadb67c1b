"""The torch kernels give the same bits as the numba ones; the sketch estimates distances; steering finds its
density."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs import parse, sketch, snap, squared_distance
from taut.codecs.kernels import torch_ops
from taut.codecs.math.density_control import Steering
from taut.codecs.wire.payload import COUNTS, PAIRS, Kind, header
from taut.errors import Misuse

SPECS = ["tether:slack=2^-6", "threshold:tau=2^-8", "dense", "tether", "threshold:density=0.3"]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(SPECS), st.integers(1, 700), st.integers(1, 7), st.integers(0, 2**32 - 1))
def test_torch_gives_the_same_bits(spec, size, workers, seed):
    rng = np.random.default_rng(seed)
    codec, w = parse(spec), rng.standard_normal(size, np.float32)
    grid = snap(w, [size])
    tensor = torch.from_numpy(w.copy())
    ours, theirs = codec.start(w, workers, grid), codec.start(tensor, workers, grid)
    for _ in range(4):
        step = rng.standard_normal(size, np.float32) * np.float32(rng.choice([0.003, 0.02]))
        w += step
        tensor += torch.from_numpy(step)
        lo = 64 * int(rng.integers(0, size // 64 + 1))
        one, other = codec.emit(ours, lo, size), codec.emit(theirs, lo, size)
        assert one == other
        for payload in (one, _foreign(rng, size, codec.exact)):
            if payload is not None:
                codec.absorb(ours, payload)
                codec.absorb(theirs, payload)
        assert w.tobytes() == tensor.numpy().tobytes()
        assert ours.b.tobytes() == theirs.b.numpy().tobytes()
        if ours.r is not None:
            assert ours.r.tobytes() == theirs.r.numpy().tobytes()
    assert codec.flush(ours) == codec.flush(theirs)
    assert sketch(w) == pytest.approx(sketch(tensor), abs=1e-4)


def _foreign(rng: np.random.Generator, size: int, exact: bool) -> bytes:
    """A payload of any kind, repeats of words included."""
    from taut.codecs.wire.merge import _write

    kinds = [Kind.WORDS, Kind.BITMAP, *COUNTS, *PAIRS]
    kind = kinds[int(rng.integers(0, len(kinds)))]
    indices = np.flatnonzero(rng.random(size) < 0.3)
    numbers = rng.choice([-3, -1, 1, 2] if kind is not Kind.BITMAP else [-1, 1], indices.size)
    return _write(kind, indices, numbers, 2.0**-9, 0, size)


def test_torch_pieces_and_a_full_buffer(monkeypatch):
    """Vectors of many pieces, from nothing to everything sent, take the same form as in one piece."""
    monkeypatch.setattr(torch_ops, "PIECE", 256)
    for share in (0.0, 0.01, 0.06, 0.07, 1.0):
        codec, w = parse("tether:slack=2^-6"), np.zeros(5000, np.float32)
        ours, theirs = codec.start(w, 2), codec.start(torch.zeros(5000), 2)
        hot = np.random.default_rng(0).random(5000) < share
        w[hot] = 2**-6
        theirs.w += torch.from_numpy(w)
        payload = codec.emit(ours, 0, 5000)
        assert payload == codec.emit(theirs, 0, 5000)
        assert payload is None or header(payload).kind is (Kind.BITMAP if share > 0.0625 else Kind.RICE)


def test_adopt_takes_either_kind_of_vector():
    codec, shared = parse("threshold:tau=2^-8"), np.arange(100, dtype=np.float32)
    for w in (np.zeros(100, np.float32), torch.zeros(100)):
        state = codec.start(w, 2)
        w[:] = w + 0.001
        codec.emit(state, 0, 100)
        codec.adopt(state, shared)
        assert (np.asarray(w) == shared).all()
        assert (np.asarray(state.b) == shared).all()
        assert not np.asarray(state.r).any()
    with pytest.raises(Misuse, match="99"):
        codec.adopt(state, shared[:99])


def test_sketch_estimates_distances():
    """Unbiased, about 9% with 256 buckets; a change in a few places is seen as well as one everywhere."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal(30_000).astype(np.float32)
    for indices in (slice(None), slice(100, 110), slice(29_990, None)):
        b = a.copy()
        b[indices] += np.float32(0.1)
        true = float(((a - b).astype(np.float64) ** 2).sum())
        found = [squared_distance(sketch(a, seed), sketch(b, seed)) / true for seed in range(30)]
        assert np.mean(found) == pytest.approx(1.0, abs=0.07)
        assert np.std(found) < 0.2
    assert sketch(a) != sketch(a, seed=1)
    np.testing.assert_allclose(np.add(sketch(a), sketch(b)), sketch(a + b), atol=0.01)  # linear
    with pytest.raises(Misuse, match="100 buckets"):
        sketch(a, buckets=100)
    with pytest.raises(Misuse, match="sketches"):
        squared_distance([1.0], [1.0, 2.0])


@pytest.mark.parametrize("spec", ["tether:density=0.01", "threshold:density=0.01", "tether:density=0.2"])
@pytest.mark.parametrize("scale", [1e-5, 1e-2])
@pytest.mark.parametrize("parts", [1, 4])
def test_density_is_found_from_any_scale(spec, scale, parts):
    rng = np.random.default_rng(1)
    size = 8192
    codec, w = parse(spec), np.zeros(size, np.float32)
    state = codec.start(w, 4)
    assert codec.emit(state, 0, size) is None  # nothing has moved: nothing to judge by
    sent = []
    for step in range(400):
        w += rng.standard_normal(size, np.float32) * np.float32(scale)
        before = state.words_sent
        codec.emit(state, step % parts * (size // parts), (step % parts + 1) * (size // parts))
        sent.append((state.words_sent - before) / size)
    assert codec.density / 3 < np.mean(sent[200:]) < codec.density * 3
    assert codec.density / 4 < state.density < codec.density * 4
    assert np.log2(state.limit).is_integer()


def test_steering_settles():
    """With density = c / limit^2 the limit comes to rest, from both sides."""
    for limit in (2.0**-12, 1.0):
        steering, changes, now = Steering(0.01), [], limit
        for _ in range(3000):
            sent = min(1000, round(1000 * (0.001 / now) ** 2))
            factor = steering.note(sent, 1000, 1000)
            now *= factor
            changes.append(factor != 1.0)
        assert not any(changes[1500:])
        assert 0.004 <= (0.001 / now) ** 2 <= 0.02


def test_steered_limit_stays_on_the_grid():
    w = np.full(100, 100.0, np.float32)
    grid = snap(w, [100])
    for spec in ("tether:density=0.5", "threshold:density=0.5"):
        codec = parse(spec)
        state = codec.start(w, 4, grid)
        for _ in range(200):
            w[:] = w + np.float32(2**-14)
            codec.emit(state, 0, 100)
        assert state.quantum >= grid.finest
        assert (state.quantum / grid.finest).is_integer()


def test_importing_codecs_is_cheap():
    code = "import sys, taut.codecs; print([m for m in ('torch', 'numba') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"

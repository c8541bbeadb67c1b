"""A whole update in one pass of a GPU is the update that NumPy and torch make: compiled where there is a GPU, else in
Triton's interpreter (``tests/conftest.py`` asks for it)."""

import os
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs import Feedback, codec
from taut.codecs.algorithms.dgc import DGC
from taut.codecs.algorithms.int8 import Int8
from taut.codecs.algorithms.onebit import OneBit
from taut.codecs.algorithms.topk import TopK
from taut.codecs.kernels import torch_ops
from taut.errors import NonFiniteUpdate

pytest.importorskip("triton")

from taut.codecs.kernels.triton import kernels, topk
from taut.codecs.kernels.triton.buffers import Scratch, scratch

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
COMPRESSORS = [Int8(), OneBit(2048), OneBit(512), TopK(0.001), TopK(0.01), TopK(1 / 16)]


@pytest.fixture(autouse=True)
def fresh_scratch():
    scratch.cache_clear()


class Trio:
    """The same replica three times: of NumPy, of torch operations, and fused."""

    def __init__(self, compressor, start, workers=3, keep=True):
        self.codec = Feedback(compressor, keep)
        vectors = start, torch.from_numpy(start.copy()), torch.from_numpy(start.copy()).to(DEVICE)
        self.states = [self.codec.start(each, workers) for each in vectors]
        self.fused.kernels = kernels

    @property
    def fused(self):
        return self.states[2]

    def step(self, change, lo=0, hi=None):
        """An update: the payload, which is the same for all, as are the vectors afterwards."""
        payloads = []
        for state in self.states:
            state.w += change if isinstance(state.w, np.ndarray) else torch.from_numpy(change).to(state.w.device)
            payloads.append(self.codec.emit(state, lo, len(change) if hi is None else hi))
        assert payloads[1] == payloads[0] and payloads[2] == payloads[0]
        assert len({state.words_sent for state in self.states}) == 1
        for name in ("w", "b", "r"):
            own, torch_ops, fused = (state.kernels.host(getattr(state, name)).tobytes() for state in self.states)
            assert torch_ops == own and fused == own, name
        return payloads[0]


def change(rng, size, kind):
    made = rng.standard_normal(size, np.float32)
    if kind == "ties":
        return (2 * made).round() / np.float32(2)
    if kind == "zeros":
        return made * (rng.random(size) < 0.003).astype(np.float32)
    if kind == "equal":
        return np.full(size, rng.choice([-1.5, 0.0, 2.0]), np.float32)
    if kind == "tiny":
        return made * rng.choice(np.array([0.0, 1.0, 1e-42], np.float32), size)
    return made


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=repr)
@settings(max_examples=some(6), deadline=None)
@given(
    st.one_of(st.integers(1, 200), st.integers(1000, 5000)),
    st.lists(st.sampled_from(["normal", "ties", "zeros", "equal", "tiny"]), min_size=1, max_size=3),
    st.sampled_from([1, 3, 4]),
    st.integers(0, 2**32 - 1),
)
def test_a_fused_update_is_the_update(compressor, size, kinds, workers, seed):
    """With ties, with fewer elements that are not zero than are wanted, with whole blocks of zeros."""
    rng = np.random.default_rng(seed)
    trio = Trio(compressor, np.zeros(size, np.float32) if seed % 2 else change(rng, size, "normal"), workers)
    for kind in kinds:
        trio.step(change(rng, size, kind))


@pytest.mark.parametrize("compressor", [Int8(), OneBit(512), TopK(0.01)], ids=repr)
def test_fragments_and_no_residual(compressor):
    rng = np.random.default_rng(0)
    trio = Trio(compressor, np.zeros(3000, np.float32), keep=False)
    for lo, hi in ((0, 1024), (1024, 3000), (1024, 1100)):
        assert trio.step(change(rng, 3000, "normal"), lo, hi)


@pytest.mark.parametrize("compressor", [Int8(), OneBit(512), TopK(0.01)], ids=repr)
def test_the_largest_floats(compressor):
    """Scales and means of them are finite, and the same."""
    made = np.random.default_rng(1).choice(np.array([-3.4e38, -3e38, 0.0, 3e38, 3.4e38], np.float32), 1100)
    Trio(compressor, np.zeros(1100, np.float32), workers=1).step(made)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("compressor", [Int8(), OneBit(512), OneBit(64), TopK(0.01)], ids=repr)
def test_what_is_not_finite_is_named(compressor, bad):
    trio = Trio(compressor, np.zeros(700, np.float32))
    made = change(np.random.default_rng(2), 700, "normal")
    made[613] = bad
    for state in trio.states[::2]:
        state.w += made if isinstance(state.w, np.ndarray) else torch.from_numpy(made).to(DEVICE)
        with pytest.raises(NonFiniteUpdate) as caught:
            trio.codec.emit(state, 0, 700)
        assert caught.value.element == 613
    assert torch.isfinite(trio.fused.b).all() and not trio.fused.b[613]
    assert not isinstance(compressor, TopK) or not trio.fused.b.any()


def test_onebit_in_torch_operations_sees_what_is_not_a_number():
    """On a GPU nobody looks at r: the means must show it."""
    plus, minus, _ = OneBit(64).compress(torch.tensor([1.0, float("nan"), -1.0]), 0, None).body
    assert np.isnan(plus[0]) and minus[0] == -1.0


@pytest.fixture
def waits(monkeypatch):
    """The calls of ``Scratch.fetch``, which alone waits for the device."""
    found, plain = [], Scratch.fetch
    monkeypatch.setattr(Scratch, "fetch", lambda self, source: found.append(source.numel()) or plain(self, source))
    return found


@pytest.fixture
def plainly(monkeypatch):
    """The updates of topk for which the sample was no good."""
    found, plain = [], topk._plain
    monkeypatch.setattr(topk, "_plain", lambda *args: found.append(args[-1]) or plain(*args))
    return found


@pytest.mark.parametrize("compressor", [Int8(), OneBit(2048), TopK(0.001), TopK(0.02)], ids=repr)
def test_an_update_waits_once(compressor, waits, plainly):
    rng = np.random.default_rng(3)
    trio = Trio(compressor, np.zeros(6000, np.float32))
    for updates in range(1, 4):
        trio.step(change(rng, 6000, "normal"))
        assert len(waits) == updates and not plainly
    if isinstance(compressor, TopK):
        assert waits == [24 + 8 * trio.codec.compressor._wanted(6000)] * 3  # the report, and the payload


def test_topk_by_a_sample(monkeypatch, plainly):
    """A sample of few elements, yet exactly the k largest; and samples that mislead: too few candidates, and too many."""
    monkeypatch.setattr(topk, "SAMPLE", 256)
    size, rng = 3000, np.random.default_rng(4)
    step = topk.plan(size, 60).step
    assert step == 11
    trio = Trio(TopK(0.02), np.zeros(size, np.float32))
    trio.step(change(rng, size, "normal"))
    assert not plainly
    seen = np.arange(size) % step == 0
    for misleading in (seen, ~seen):
        trio = Trio(TopK(0.02), np.zeros(size, np.float32))
        trio.step(change(rng, size, "normal") + np.where(misleading, np.float32(100.0), np.float32(0.0)))
    assert plainly == [60, 60]


def test_topk_that_lies_together(plainly):
    """All in one tile, which has too few slots for them, once: it gets more."""
    size = 40960
    trio = Trio(TopK(0.0025), np.zeros(size, np.float32), workers=1)
    made = np.zeros(size, np.float32)
    made[8192 : 8192 + 4 * 103 : 4] = np.arange(1.0, 104.0)
    trio.step(made)
    assert plainly == [103]
    trio.step(made)
    assert plainly == [103]


def test_a_momentum_is_not_fused():
    """DGC takes changes in by a way of its own."""
    rng = np.random.default_rng(5)
    trio = Trio(DGC(0.01, warmup=0), np.zeros(1000, np.float32))
    for _ in range(2):
        trio.step(change(rng, 1000, "normal"))


def test_the_kernels_of_a_tensor():
    on_gpu, on_cpu = SimpleNamespace(is_cuda=True), torch.zeros(1)
    assert codec.torch_kernels(on_gpu) is kernels
    assert codec.torch_kernels(on_cpu) is torch_ops
    with mock.patch.object(codec, "find_spec", return_value=None):
        assert codec.torch_kernels(on_gpu) is torch_ops

"""The Triton kernels give the bits of the torch ones: compiled where there is a GPU, else in Triton's interpreter
(``tests/conftest.py`` asks for it). Whole updates of int8, onebit and topk: ``test_gpu_codecs.py``."""

import inspect
import os
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from unittest import mock

import numpy as np
import pytest
import torch
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs.kernels import torch_ops
from taut.codecs.wire.sign_list import room_for_words

pytest.importorskip("triton")

from taut.codecs.kernels.triton import kernels, launch
from taut.codecs.kernels.triton.buffers import Scratch, scratch
from taut.codecs.kernels.triton.launch import Tile

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


@contextmanager
def small_tiles():
    """Tiles so small that a few hundred elements fill many of them, and several groups of tiles."""
    tiles = dict.fromkeys(launch.TILES, Tile(64, 1))
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(launch, "TILES", tiles))
        stack.enter_context(mock.patch.object(launch, "GROUP", 4))
        stack.enter_context(mock.patch.object(launch, "STEP", 2))
        yield


@pytest.fixture(autouse=True)
def fresh_scratch():
    scratch.cache_clear()


def vectors(rng, size):
    return [torch.from_numpy(rng.standard_normal(size, np.float32)).to(DEVICE) for _ in range(3)]


def same(ours, theirs):
    return all(x.cpu().numpy().tobytes() == y.cpu().numpy().tobytes() for x, y in zip(ours, theirs, strict=True))


def check_signs(method, mine, theirs, lo, hi, limit, share=0.37):
    """Both kernels on their own copy of the same vectors: the same signs, the same vectors afterwards."""
    used = 2 if method == "tether" else 3
    numbers = (limit, limit / 3) if method == "tether" else (limit, share)
    room = room_for_words(len(mine[0]))
    found = getattr(kernels, method)(*mine[:used], lo, hi, *numbers, room)
    expected = getattr(torch_ops, method)(*theirs[:used], lo, hi, *numbers, room_for_words(len(mine[0])))
    assert found.count == expected.count
    for one, other in ((found.words, expected.words), (found.bits, expected.bits)):
        assert (one is None) == (other is None)
        assert one is None or (one.dtype == other.dtype and one.tobytes() == other.tobytes())
    assert found.words is None or np.shares_memory(found.words, room) or not found.count
    assert same(mine, theirs)
    return found


@pytest.mark.parametrize("method", ["tether", "threshold"])
@settings(max_examples=some(10), deadline=None)
@given(
    st.integers(1, 500),
    st.lists(st.sampled_from([0.01, 1.5, 2.5, 3.0, 9.0]), min_size=1, max_size=3),
    st.booleans(),
    st.integers(0, 2**32 - 1),
)
def test_signs_are_those_of_torch(method, size, limits, even, seed):
    """From nothing to everything sent, one update after another: words and bitmaps, and the change between them.
    ``even``: numbers on a grid, many exactly at the limit."""
    rng = np.random.default_rng(seed)
    mine = [(2 * x).round() / 2 if even else x for x in vectors(rng, size)]
    theirs = [x.clone() for x in mine]
    lo = 64 * int(rng.integers(0, (size - 1) // 64 + 1))
    hi = int(rng.integers(lo + 1, size + 1))
    with small_tiles():
        for limit in limits:
            check_signs(method, mine, theirs, lo, hi, limit, 0.5 if even else 0.37)
            step = torch.from_numpy(rng.standard_normal(size, np.float32)).to(DEVICE)
            mine[0] += step
            theirs[0] += step


@pytest.mark.parametrize("method", ["tether", "threshold"])
def test_signs_with_whole_tiles(method):
    """The tiles that a GPU gets: two whole ones and a rest, a word in each."""
    rng = np.random.default_rng(0)
    size = 2 * launch.TILES["tether"].elements + 77
    mine = vectors(rng, size)
    theirs = [x.clone() for x in mine]
    assert 0 < check_signs(method, mine, theirs, 64, size, 4.0 if method == "tether" else 3.5).count < size / 16


@pytest.mark.parametrize("method", ["tether", "threshold"])
def test_signs_that_lie_together(method):
    """Few signs, all in one place: a tile that is full beside empty ones, and more words than there was room for."""
    mine = [torch.zeros(1024, device=DEVICE) for _ in range(3)]
    mine[0][300:350] = torch.linspace(-9.0, 9.0, 50)
    theirs = [x.clone() for x in mine]
    with small_tiles():
        found = check_signs(method, mine, theirs, 0, 1024, 0.5)
    assert 1024 / 32 < found.count <= 1024 / 16
    assert (np.diff(found.words.astype(np.int64)) > 0).all()


def test_an_update_waits_once_and_keeps_its_buffers(monkeypatch):
    waits, plain = [], Scratch.fetch
    monkeypatch.setattr(Scratch, "fetch", lambda self, source: waits.append(source.numel()) or plain(self, source))
    size = 6400
    w, b, _ = vectors(np.random.default_rng(1), size)
    base, kept = w.clone(), scratch(w.device)
    held = []
    for limit in (4.0, 4.0, 4.0, 0.01, 0.01, 4.0):
        w.copy_(base)
        b.zero_()
        waits.clear()
        kernels.tether(w, b, 0, size, limit, limit / 4, room_for_words(size))
        held.append((len(waits), kept.nbytes))
    assert [count for count, _ in held] == [1, 1, 1, 2, 1, 1]  # two where a dense spell begins
    assert held[0][1] == held[2][1] and held[3][1] == held[5][1]


@given(seed=st.integers(0, 2**32), counts=st.lists(st.integers(0, 700), min_size=1, max_size=4))
@settings(max_examples=10, deadline=None)
def test_words_of_several_payloads_are_added_together(seed, counts):
    """One launch adds what the torch kernels add one payload after the other; a word may come twice."""
    dice, size = np.random.default_rng(seed), 3000
    given = []
    for count in counts:
        base = int(dice.integers(0, 1000))
        indices, minus = dice.integers(0, 1500, size=count), dice.integers(0, 2, size=count)
        given.append((base, (indices << 1 | minus).astype(np.uint32), float(2.0 ** -dice.integers(0, 9))))
    mine, theirs = (
        [torch.zeros(size, device=DEVICE) for _ in range(2)],
        [torch.zeros(size, device=DEVICE) for _ in range(2)],
    )
    kernels.add_all_words(*mine, given)
    for one in given:
        torch_ops.add_words(*theirs, *one)
    length = int(dice.integers(1, 2000))
    bits = np.packbits(dice.integers(0, 2, size=8 * -(-length // 4)).astype(np.uint8))
    bits &= ~((bits & 0xAA) >> 1)  # no code is 3
    for each, vectors_of in ((kernels, mine), (torch_ops, theirs)):
        each.add_bits(*vectors_of, 500, length, bits, 0.25)
    assert all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True))


def test_a_drop_in_for_the_torch_kernels():
    members = inspect.getmembers(torch_ops, inspect.isfunction)
    names = [name for name, each in members if each.__module__ == torch_ops.__name__ and name[0] != "_"]
    assert {"like", "tether", "threshold", "mean", "sample", "add_words", "add_bits", "add_values"} <= set(names)
    for name in names:
        assert inspect.signature(getattr(kernels, name)) == inspect.signature(getattr(torch_ops, name))


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from taut.codecs.kernels.triton.scan import find
types = dict.fromkeys(("n", "first", "cap"), "i32") | dict.fromkeys(("limit", "share"), "fp32")
types |= dict.fromkeys(("w", "b", "r"), "*fp32") | dict.fromkeys(("edge", "slots", "counts"), "*i32")
types |= {"total": "*i64", "bits": "*u8"}
fixed = {"SOURCE": 1, "EDGE": False, "FULL": True, "BITS": False, "BLOCK": 1024}
places = {name: (place,) for place, name in enumerate(find.arg_names)}
wide = {places[name]: [["tt.divisibility", 16]] for name in types if types[name][0] == "*"}
signature = {name: types.get(name, "constexpr") for name in find.arg_names}
source = ASTSource(find, signature, {places[name]: value for name, value in fixed.items()}, wide)
made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "enable_fp_fusion": False})
print(made.asm["ptx"])
"""


def test_compiled_for_hopper():
    """No GPU is needed to compile: loads are 16 bytes wide and no product is fused into a sum."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=True)
    loads = [line for line in done.stdout.splitlines() if "ld.global" in line]
    assert len(loads) == 6 and all(".v4" in line for line in loads)
    assert "fma" not in done.stdout and "mul" in done.stdout

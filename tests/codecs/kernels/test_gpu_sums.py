"""Payloads of several workers are added in one launch, with the bits of adding one after the other: compiled where there
is a GPU, else in Triton's interpreter (``tests/conftest.py`` asks for it)."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs import device_vectors, parse
from taut.codecs.codec import Codec
from taut.codecs.device_vectors import DeviceVectorCodec
from taut.codecs.kernels import torch_ops
from taut.codecs.vector_codec import VectorCodec
from taut.core.events import Include
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.replica import Replica

pytest.importorskip("triton")

from taut.codecs.kernels.triton import kernels, received, sums
from taut.codecs.kernels.triton.buffers import scratch

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
SIZE = 5000


@pytest.fixture(autouse=True)
def fresh_scratch():
    scratch.cache_clear()


@pytest.fixture
def launches(monkeypatch):
    """The names of the kernels that are launched."""
    found = []

    class Counted:
        def __init__(self, name, plain):
            self.name, self.plain = name, plain

        def __getitem__(self, grid):
            found.append(self.name)
            return self.plain[grid]

    for module, name in ((sums, "_sum_levels"), (sums, "_add_entries"), (received, "_add_words")):
        monkeypatch.setattr(module, name, Counted(name, getattr(module, name)))
    return found


def there(array):
    return torch.from_numpy(array.copy()).to(DEVICE)


@settings(max_examples=some(10), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    counts=st.lists(st.integers(0, 300), min_size=1, max_size=5),
    span=st.sampled_from([300, 3000]),
    targets=st.integers(1, 2),
)
def test_sparse_payloads_add_up_in_order(seed, counts, span, targets):
    """Elements that several have, and values of such different sizes that the order shows in the bits."""
    dice, given = np.random.default_rng(seed), []
    for count in counts:
        indices = np.sort(dice.permutation(span)[:count]).astype(np.uint32)
        values = (dice.standard_normal(count) * 10.0 ** dice.integers(-6, 6, count)).astype(np.float32)
        given.append((int(dice.integers(0, SIZE - span)), indices, values))
    start = dice.standard_normal((2, SIZE), np.float32)
    mine, theirs = [there(one) for one in start[:targets]], [torch.from_numpy(one.copy()) for one in start[:targets]]
    kernels.add_all_entries(mine, given)
    torch_ops.add_all_entries(theirs, given)
    for one, other in zip(mine, theirs, strict=True):
        assert one.cpu().numpy().tobytes() == other.numpy().tobytes()


@settings(max_examples=some(10), deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.one_of(st.integers(1, 600), st.integers(4000, 5000)),
    block=st.sampled_from([64, 256, 4096]),
    count=st.integers(1, 4),
    own=st.integers(-1, 3),
)
def test_whole_numbers_add_up_in_order(seed, size, block, count, own):
    dice, given = np.random.default_rng(seed), []
    for number in range(count):
        scales = (10.0 ** dice.integers(-6, 6, -(-size // block))).astype(np.float32)
        numbers = dice.integers(-127, 128, size).astype(np.int8)
        decoded = dice.standard_normal(size, np.float32)
        given.append(decoded if number == own else (scales, numbers))
    sums_of = []
    for module, device in ((kernels, DEVICE), (torch_ops, "cpu")):
        parts = [
            torch.from_numpy(one).to(device)
            if isinstance(one, np.ndarray)
            else tuple(torch.from_numpy(part).to(device) for part in one)
            for one in given
        ]
        out = torch.full((size,), float("nan"), device=device)
        module.sum_levels(out, parts, block)
        sums_of.append(out.cpu().numpy().tobytes())
    assert sums_of[0] == sums_of[1]


@pytest.mark.parametrize("codec", ["int8", "topk:density=0.02"])
@pytest.mark.parametrize("workers", [2, 5])
def test_a_round_of_sync_is_summed_in_one_launch(codec, workers, launches, monkeypatch):
    """Also where this worker's own payload is decoded already."""
    monkeypatch.setattr(device_vectors, "torch_kernels", lambda _: kernels)
    monkeypatch.setattr(device_vectors, "LARGE_NBYTES", 1)
    dice = np.random.default_rng(0)
    vectors = dice.standard_normal((workers, SIZE), np.float32)
    hosts = [VectorCodec(parse(codec), SIZE, seed=rank) for rank in range(workers)]
    device = DeviceVectorCodec(parse(codec), SIZE, seed=1)
    device.device = torch.device(DEVICE)
    payloads = [host.encode(v) for host, v in zip(hosts, vectors, strict=True)]
    expected = np.zeros(SIZE, np.float32)
    hosts[0].total(payloads, [1.0] * workers, expected)
    payloads[1] = device.encode(there(vectors[1]))
    for payload in payloads:
        device.check(payload, SIZE)
    out = device.room(SIZE)
    device.total(payloads, [1.0] * workers, out)
    assert device.host(out).tobytes() == expected.tobytes()
    assert launches == ["_sum_levels" if codec == "int8" else "_add_entries"]


@pytest.mark.parametrize("codec", ["topk:density=0.02", "threshold:tau=2^-4"])
@pytest.mark.parametrize("workers", [1, 6])
def test_what_came_together_is_merged_in_one_launch(codec, workers, launches):
    """The updates of several workers that ``async`` includes before a step."""
    dice = np.random.default_rng(0)
    made: Codec = parse(codec)
    states = [made.start(torch.zeros(SIZE, device=DEVICE), workers=1) for _ in range(2)]
    items = []
    for _ in range(workers):
        w = np.zeros(SIZE, np.float32)
        sender = made.start(w, workers=1)
        w += dice.standard_normal(SIZE, np.float32) * np.float32(0.03)
        payload = made.emit(sender, 0, SIZE)
        assert payload is not None
        items.append(Include(0, 0, 1, payload, made.check(states[0], payload)))
    states[0].kernels = kernels
    replica = Replica(FlatParams(torch.nn.Linear(SIZE, 1, bias=False)), made)
    replica.codec_state = states[0]
    assert not replica.absorb_together(items)
    for item in items:
        made.absorb(states[1], item.payload, item.checked)
    assert launches == ["_add_entries" if codec.startswith("topk") else "_add_words"]
    for name in ("w", "b"):
        one, other = (kernels.host(getattr(state, name)) for state in states)
        assert one.tobytes() == other.tobytes() and one.any()


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from taut.codecs.kernels.triton import sums
cases = {
    "_sum_levels": ({"ROWS": 8, "BLOCK": 256}, {"n": "i32", "payloads": "i32", "own": "i32"}),
    "_add_entries": ({"TWO": True, "BLOCK": 256}, {"n": "i32", "payloads": "i32", "halvings": "i32"}),
}
types = dict.fromkeys(("out", "decoded", "x", "y", "values"), "*fp32") | {"table": "*i64", "indices": "*i32"}
for name, (fixed, numbers) in cases.items():
    kernel = getattr(sums, name)
    signature = {arg: (types | numbers).get(arg, "constexpr") for arg in kernel.arg_names}
    places = {(kernel.arg_names.index(arg),): value for arg, value in fixed.items()}
    source = ASTSource(kernel, signature, places)
    options = {"num_warps": 4, "enable_fp_fusion": False}
    print(triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"])
"""


def test_compiled_for_hopper():
    """No GPU is needed to compile: no product is fused into a sum, no operation is atomic, all fits into registers."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.count(".visible .entry") == 2
    assert not any(word in done.stdout for word in ("fma", "atom.", "red.", ".local"))

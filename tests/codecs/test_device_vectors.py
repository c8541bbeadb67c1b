"""Vectors on a device: the same payloads and the same sums, to the last bit, as in host memory.

The device is the CPU here, with torch tensors in place of arrays; on a GPU, ``TAUT_TEST_DEVICE=cuda`` runs the same laws.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.codecs import REGISTRY, parse
from taut.codecs import device_vectors as module
from taut.codecs.device_vectors import DeviceVectorCodec
from taut.codecs.vector_codec import VectorCodec
from taut.codecs.wire.layouts.int_levels import preamble
from taut.codecs.wire.payload import Header, Kind, build
from taut.errors import MalformedMessage, NonFiniteUpdate
from taut.strategies.allreduce.compressed_group import CompressedGroup
from taut.strategies.api import Membership
from taut.topologies.registry import parse as parse_topology

DEVICE = torch.device(os.environ.get("TAUT_TEST_DEVICE", "cpu"))
SHAPES = ((40, 50), (77,), (3, 5))
SIZE = 2092
CODECS = [name for name in REGISTRY if name != "tether"]
CHOSEN = {"threshold": "threshold:tau=2^-4", "topk": "topk:density=0.05", "randomk": "randomk:density=0.1"}


def pair(codec: str, rank: int) -> tuple[VectorCodec, DeviceVectorCodec]:
    given = parse(CHOSEN.get(codec, codec)), SIZE, SHAPES, rank, 3
    there = DeviceVectorCodec(*given)
    there.device = DEVICE
    return VectorCodec(*given), there


def on_device(v: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(v.copy()).to(DEVICE)


@pytest.mark.parametrize("codec", [*CODECS, "sign:vote=yes"])
@given(seed=st.integers(0, 2**32), weights=st.lists(st.integers(0, 9), min_size=1, max_size=3))
@settings(max_examples=5, deadline=None)
def test_payloads_and_sums_have_the_same_bits(codec: str, seed: int, weights: Sequence[int]) -> None:
    dice = np.random.default_rng(seed)
    pairs = [pair(codec, rank) for rank in range(len(weights))]
    for _ in range(3):
        payloads = []
        for (here, there), weight in zip(pairs, weights, strict=True):
            v = dice.normal(size=SIZE).astype(np.float32)
            payloads.append(here.encode(v, weight, b"tail"))
            made = bytes(there.encode(on_device(v), weight, b"tail"))
            assert made == payloads[-1] or codec == "powersgd"  # whose matrices are multiplied in another order
        payloads = [memoryview(payload)[:-4] for payload in payloads]
        for here, there in pairs:
            out, summed = here.room(SIZE), there.room(SIZE)
            for payload in payloads:
                here.check(payload, SIZE)
                there.check(payload, SIZE)
            here.total(payloads, weights, out)
            there.total(payloads, weights, summed)
            assert there.host(summed).tobytes() == out.tobytes()
            here.divide(out, 7.0, out)
            there.divide(summed, 7.0, summed)
            assert there.host(summed).tobytes() == out.tobytes()
    for here, there in pairs if codec != "powersgd" else ():
        assert list(here.residual_parts()) == list(there.residual_parts())


def test_large_payloads_are_put_together_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGE_NBYTES", 1)
    here, there = pair("int8", 0)
    v = np.random.default_rng(0).normal(size=SIZE).astype(np.float32)
    tail = b"t" * 100
    payload = there.encode(on_device(v), 2.0, tail)
    assert isinstance(payload, memoryview)
    assert bytes(payload) == here.encode(v, 2.0, tail)
    longer = b"t" * (module.TAIL_NBYTES + 1)
    assert bytes(there.encode(on_device(v), 2.0, longer)) == here.encode(v, 2.0, longer)
    own, other = there.encode(on_device(v), 1.0), here.encode(v, 1.0)
    summed = there.room(SIZE)
    there.total([own, other], [1.0, 1.0], summed)  # the first of them is taken from where it was made
    decoded = np.zeros(SIZE, np.float32)
    here.add(other, decoded)
    assert there.host(summed).tobytes() == (decoded + decoded).tobytes()


@pytest.mark.parametrize("codec", ["int8", "topk", "fp16"])
@given(data=st.binary(min_size=1, max_size=64), at=st.integers(0, 2000))
@settings(max_examples=30, deadline=None)
def test_the_same_payloads_are_refused(codec: str, data: bytes, at: int) -> None:
    here, there = pair(codec, 0)
    payload = bytearray(here.encode(np.random.default_rng(1).normal(size=SIZE).astype(np.float32)))
    payload[at : at + len(data)] = data
    assert refused(here, bytes(payload)) == refused(there, bytes(payload))


def refused(coder: VectorCodec, payload: bytes) -> str:
    try:
        coder.check(payload, SIZE)
    except MalformedMessage as error:
        return str(error)
    return ""


def test_the_number_that_is_not_used_is_refused() -> None:
    _, there = pair("int8", 0)
    numbers = np.zeros(SIZE, np.int8)
    numbers[2000] = -128
    body = (preamble(8, 256), np.ones(-(-SIZE // 256), np.float32), numbers)
    with pytest.raises(MalformedMessage, match="-128"):
        there.check(build(Header(Kind.LEVELS, 0.0, 0, SIZE, SIZE), *body), SIZE)


def test_a_payload_is_read_again_where_another_lay() -> None:
    """A round that is broken off leaves payloads that were checked; what comes into their memory is another one."""
    _, there = pair("int8", 0)
    memory = bytearray(there.encode(on_device(np.full(SIZE, 3.0, np.float32))))
    there.check(bytes(memory), SIZE)
    other = bytes(there.encode(on_device(np.full(SIZE, -5.0, np.float32))))
    there.check(other, SIZE)
    summed = there.room(SIZE)
    there.total([other], [1.0], summed)
    assert there.host(summed).max() < 0.0
    assert not there._copies.kept


def test_what_is_not_finite_is_not_sent() -> None:
    _, there = pair("int8", 0)
    v = np.zeros(SIZE, np.float32)
    v[7] = np.nan
    with pytest.raises(NonFiniteUpdate, match="element 7"):
        there.encode(on_device(v))


def test_a_round_of_a_group_is_the_same_on_both() -> None:
    """Members whose sums are on a device and in host memory agree; one that is behind gets the result of the other."""
    dice = np.random.default_rng(3)
    vectors = [dice.normal(size=SIZE).astype(np.float32) for _ in range(2)]
    coders = [pair("int8", 0)[0], pair("int8", 1)[1]]
    groups = [CompressedGroup(member(rank, (0, 1), 1), SIZE, coders[rank]) for rank in range(2)]
    tells = [(0, tell) for tell in groups[0].begin(vectors[0], 3.0, extra=(5.0,))] + [
        (1, tell) for tell in groups[1].begin(on_device(vectors[1]), 1.0, extra=(6.0,), keeps=True)
    ]  # type: ignore[arg-type]
    deliver(groups, tells)
    out, there = np.zeros(SIZE, np.float32), torch.zeros(SIZE, device=DEVICE)
    assert groups[0].mean(out) == groups[1].mean(there) == 4.0  # type: ignore[arg-type]
    assert groups[0].extra == groups[1].extra == [11.0]
    assert there.cpu().numpy().tobytes() == out.tobytes()


def test_a_result_reaches_a_member_on_a_device() -> None:
    """Worker 2 dies when all but worker 1 have its share: worker 1 gets the sum from worker 0."""
    dice = np.random.default_rng(4)
    vectors = [dice.normal(size=SIZE).astype(np.float32) for _ in range(3)]
    for ahead, behind in ((0, 1), (1, 0)):
        coders = [pair("topk", 0)[0], pair("topk", 1)[1], pair("topk", 2)[0]]
        groups = [CompressedGroup(member(rank, (0, 1, 2), 1), SIZE, coders[rank]) for rank in range(3)]
        tells = []
        for rank, group in enumerate(groups):
            v = on_device(vectors[rank]) if rank == 1 else vectors[rank]
            tells += [(rank, tell) for tell in group.begin(v, 1.0, keeps=True)]  # type: ignore[arg-type]
        lost = deliver(groups, tells, (2, behind))
        assert groups[ahead].done and not groups[behind].done and lost
        tells = [(rank, t) for rank in (0, 1) for t in groups[rank].members_changed(member(rank, (0, 1), 2))]
        deliver(groups[:2], tells)
        means = [np.zeros(SIZE, np.float32), torch.zeros(SIZE, device=DEVICE)]
        assert groups[0].mean(means[0]) == groups[1].mean(means[1]) == 3.0  # type: ignore[arg-type]
        assert means[1].cpu().numpy().tobytes() == means[0].tobytes()  # type: ignore[union-attr]


def member(rank: int, ranks: tuple[int, ...], version: int) -> Membership:
    return Membership(rank, ranks, parse_topology("complete"), version)


def deliver(groups: Sequence[CompressedGroup], tells: list[Any], lost: tuple[int, int] | None = None) -> int:
    """Deliver all messages, but for the shares from and to the ``lost`` pair; return how many were lost."""
    dropped = 0
    while tells:
        sender, tell = tells.pop(0)
        if (sender, tell.to) == lost and tell.note.kind == "share":
            dropped += 1
        else:
            tells += [(tell.to, more) for more in groups[tell.to].heard(sender, tell.note, bytes(tell.payload))]
    return dropped

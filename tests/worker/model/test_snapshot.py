"""A state survives being packed, and bytes that are none are refused; a transfer completes whatever is lost."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from taut.codecs import parse
from taut.core.events import Include
from taut.core.messages import StateChunk, StateRequest
from taut.errors import MalformedMessage
from taut.worker.comm import state_transfer
from taut.worker.comm.state_transfer import Donation, Fetch
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.replica import Replica
from taut.worker.model.snapshot import Snapshot, pack, unpack

STATE = Snapshot(
    b"weights!", b"still", {"sizes": [2], "exponents": [-21]}, (Include(3, 1, 2, b"xy"), Include(4, 1, 1, b""))
)


def test_round_trip() -> None:
    assert unpack(pack(STATE)) == STATE


@given(st.data())
def test_other_bytes_are_refused_by_name(data: st.DataObject) -> None:
    packed = bytearray(pack(STATE))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(packed[: data.draw(st.integers(0, len(packed)))])
    try:
        unpack(cut)
    except MalformedMessage:
        return
    assert len(cut) == len(packed)  # only a state of the right length can pass


@pytest.mark.parametrize(
    "state",
    [
        Snapshot(b"", b"", {"sizes": [2], "exponents": [0]}),
        Snapshot(b"12345", b"", {"sizes": [2], "exponents": [0]}),
        Snapshot(b"weights!", b"", {"sizes": [2]}),
        Snapshot(b"weights!", b"", {}),
        Snapshot(b"weights!", b"", {"sizes": [3], "exponents": [0]}),
        Snapshot(b"weights!", b"", {"sizes": [1, 1], "exponents": [0]}),
    ],
)
def test_a_state_that_is_another_models_is_refused_by_name(state: Snapshot) -> None:
    replica = Replica(FlatParams(torch.nn.Linear(2, 1, bias=False)), parse("tether"))
    with pytest.raises(MalformedMessage):
        replica.join(state, workers=2)
    replica.join(Snapshot(b"\0" * 8, b"", {"sizes": [2], "exponents": [-21]}), workers=2)


@given(seed=st.integers(0, 2**32), size=st.integers(0, 50), loss=st.sampled_from([0.0, 0.3]))
def test_the_joiner_gets_the_snapshot_whole(seed: int, size: int, loss: float) -> None:
    chance = random.Random(seed)
    data = chance.randbytes(size)
    donation, fetch, now = Donation(), Fetch(donor=7, limit_nbytes=1000), 0.0
    inbox: list[StateRequest] = []
    answers: list[tuple[StateChunk, bytes]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_transfer, "CHUNK_NBYTES", 8)
        patch.setattr(state_transfer, "FIRST_NBYTES", 2)
        for _ in range(10_000):
            now += 0.5
            inbox += [request for request in fetch.due(now) if chance.random() >= loss]
            for each in inbox:
                answer = donation.request(1, each)
                answers += [answer] if answer is not None else []
            inbox.clear()
            if donation.waiting and chance.random() < 0.5:
                answers += [(chunk, part) for _, chunk, part in donation.grant(data, {0: 5})]
            for chunk, part in answers:
                if chance.random() >= loss:
                    fetch.arrived(7, chunk, [part], now)
            answers.clear()
            if fetch.complete:
                break
    assert fetch.complete
    assert fetch.data() == data
    assert fetch.have == {0: 5}


def test_a_state_that_is_too_large_is_not_taken() -> None:
    fetch = Fetch(donor=7, limit_nbytes=10)
    fetch.arrived(7, StateChunk(0, 11, {}), [b"x" * 11], 0.0)
    fetch.arrived(8, StateChunk(0, 3, {}), [b"abc"], 0.0)
    assert fetch.total is None

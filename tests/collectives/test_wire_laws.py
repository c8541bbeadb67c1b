"""Halves on the wire: the same bits everywhere, half of the bytes, an error of a rounding a hop, and exact numbers."""

from __future__ import annotations

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from reducing import Cluster, programs, results

from taut.collectives import REGISTRY, Reduction, Schedule, Torus
from taut.collectives.wire import WIRES, Wire
from taut.errors import MalformedMessage, Misuse
from taut.strategies.allreduce.sync import Sync

seeds = st.integers(0, 2**32 - 1)
schedules = st.sampled_from([*REGISTRY.values(), Torus(rows=1)])
halves = st.sampled_from(["bf16", "fp16"])
ROUNDING = {"bf16": 2.0**-8, "fp16": 2.0**-10}


def reduced(schedule: Schedule, parts: np.ndarray, wire: Wire, cut: int, seed: int) -> Cluster:
    p, length = parts.shape
    made = [
        Reduction(program, part.copy(), cut, wire=wire)
        for program, part in zip(programs(schedule, p, length), parts, strict=True)
    ]
    cluster = Cluster(made)
    cluster.run(seed, repeat=0.1)
    return cluster


@settings(max_examples=some(150), deadline=None)
@given(schedules, st.integers(2, 12), st.integers(1, 200), st.integers(0, 5), st.sampled_from([64, 17, 5]), halves, seeds)
def test_the_same_bits_everywhere(schedule, p, length, numbers, cut, name, seed):
    rng = np.random.default_rng(seed)
    parts = np.zeros((p, length + numbers), np.float32)
    parts[:, :length] = rng.standard_normal((p, length)) * 2.0 ** rng.integers(-4, 5, (p, length))
    parts[:, length:] = rng.integers(-100_000, 100_000, (p, numbers))  # counts, which halves could not hold
    wire = Wire(name, exact=length)
    found = {
        result.tobytes() for order in (seed, seed + 1) for result in results(reduced(schedule, parts, wire, cut, order))
    }
    assert len(found) == 1
    total = np.frombuffer(found.pop(), np.float32)
    exact = parts.astype(np.float64)
    assert (total[length:] == exact[:, length:].sum(axis=0)).all()
    tolerance = np.abs(exact).sum(axis=0) * (p + 2) * ROUNDING[name] + 1e-6
    assert (np.abs(total - exact.sum(axis=0)) <= tolerance)[:length].all()


@settings(max_examples=some(100), deadline=None)
@given(schedules, st.integers(2, 9), st.integers(1, 100), halves, seeds)
def test_half_of_the_bytes(schedule, p, length, name, seed):
    parts = np.random.default_rng(seed).standard_normal((p, length)).astype(np.float32)
    whole, half = (reduced(schedule, parts, Wire(each, exact=length), 17, seed) for each in ("float32", name))
    for one, other in zip(whole.sent, half.sent, strict=True):
        assert 2 * sum(len(piece.data) for piece in other) == sum(len(piece.data) for piece in one)


@given(st.lists(st.floats(width=32, allow_nan=True), min_size=1, max_size=50), st.sampled_from(WIRES), st.integers(0, 50))
def test_what_is_written_is_what_is_kept(values, name, exact):
    buffer = np.array(values, np.float32)
    wire, before = Wire(name, exact), buffer.copy()
    if wire.full:
        return
    data = wire.write(buffer, 0, len(buffer))
    assert len(data) == wire.nbytes(0, len(buffer))
    read = wire.read(data, 0, len(buffer))
    np.testing.assert_array_equal(read, buffer)
    np.testing.assert_array_equal(buffer[exact:], before[exact:])
    assert wire.write(buffer.copy(), 0, len(buffer)) == data  # rounding again changes nothing


def test_a_piece_of_another_length_is_refused() -> None:
    machine = Reduction(REGISTRY["ring"].program(2, 0, 8), np.zeros(8, np.float32), wire=Wire("bf16", exact=8))
    machine.begin()
    with pytest.raises(MalformedMessage, match="16 bytes, expected 8"):
        machine.arrived(1, 0, 0, bytes(16))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"wire": "fp8"}, "sync: wire=fp8"),
        ({"wire": "bf16", "backup": 1}, "sync: wire=bf16 with backup=1"),
        ({"wire": "bf16", "schedule": "gloo"}, "sync: wire=bf16 with schedule=gloo"),
    ],
)
def test_what_does_not_go_together_is_named(settings, told):
    with pytest.raises(Misuse) as raised:
        Sync(**settings)
    assert told in str(raised.value)


def test_a_codec_beside_it_is_refused() -> None:
    with pytest.raises(Misuse, match="one of the two"):
        Sync(wire="bf16").check_codec("topk")

"""A worker that is alone encodes nothing; one that joins later gets the right state all the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts import ran
from torch import nn

from taut.codecs import Codec, Tether, parse, snap
from taut.simulator.faults import Fail, Fault, Join
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.replica import Replica

TRAIN = """
with taut.join(model, optimizer) as worker:
    train(worker, epochs=4)
report(rank=worker.rank, sent=worker._session.exchange.sent, steps=worker.steps)
"""


def replica(codec: Codec | str = "tether:slack=2^-6", size: int = 200) -> Replica:
    found = Replica(FlatParams(nn.Linear(size, 1, bias=False)), parse(codec))
    found.found(workers=1)
    return found


@given(st.lists(st.floats(-100.0, 100.0, width=32), min_size=1, max_size=40), st.integers(0, 2**32 - 1))
def test_the_grid_takes_the_nearest_multiples(moves: list[float], seed: int) -> None:
    b = np.random.default_rng(seed).standard_normal(len(moves)).astype(np.float32)
    grid = snap(b, [len(b)])
    w = b + np.array(moves, np.float32)
    grid.take(b, w)
    unit = 2.0 ** grid.exponents[0]
    assert np.all(b / unit == np.rint(b / unit))
    assert np.all(np.abs(b.astype(np.float64) - w) <= unit / 2)


def test_what_is_not_finite_is_not_shared() -> None:
    one = replica()
    before, moved = one.shared().copy(), one.params.vector
    moved += 0.5
    moved[3], moved[7] = np.nan, np.inf
    assert one.fall_behind()
    after = one.shared()
    assert np.array_equal(after[[3, 7]], before[[3, 7]]) and np.allclose(np.delete(after - before, [3, 7]), 0.5)


def test_whoever_asks_sees_what_was_trained_alone() -> None:
    one = replica()
    grid, old = one.grid, one.shared().copy()
    one.params.vector[:] += np.float32(0.1)
    assert one.fall_behind()
    state = np.frombuffer(one.state().vector, np.float32)
    assert grid is not None and np.abs(state - one.params.vector).max() <= 2.0 ** max(grid.exponents)
    assert not np.array_equal(state, old)
    assert one.emit() is None and one.flush() == []  # nothing is left to send
    one.take_shared()
    assert np.array_equal(one.params.vector, state)


def test_what_was_trained_alone_is_not_taken_for_one_step() -> None:
    one = replica("tether")
    move = np.float32(2.0**-12)
    assert not one.fall_behind()  # the first steps say how far the optimizer moves, and how
    for _ in range(4):
        one.params.vector[:] += move
        one.steps += 1
        one.emit()
    size = one.codec_state.step_size.size
    assert size == pytest.approx(2.0**-12, rel=0.01) and one.codec_state.step_size.normalized
    assert one.fall_behind()
    one.params.vector[:] += 1000 * move
    one.steps += 1000
    one.emit()
    assert one.codec_state.step_size.size == pytest.approx(size, rel=0.01)
    one.params.vector[:] += move
    one.steps += 1
    one.emit()
    assert one.codec_state.step_size.size == pytest.approx(size, rel=0.01)


@pytest.mark.parametrize("codec", ["threshold:tau=2^-8", "topk:density=0.1", "dense"])
def test_codecs_that_keep_a_residual_do_not_fall_behind(codec: str) -> None:
    one = replica(codec)
    assert not one.fall_behind()
    assert Tether.catches_up


@pytest.mark.parametrize("faults", [(), (Join(1, 0.5),), (Join(2, 0.3), Fail(1, 0.7))])
def test_workers_that_join_a_worker_alone_end_with_its_weights(faults: tuple[Fault, ...], tmp_path: Path) -> None:
    found = ran(tmp_path, TRAIN, "async", workers=1, faults=faults)
    told = [each for each in found.told if each]
    assert len(told) == 1 + sum(fault.count for fault in faults if isinstance(fault, Join)) - sum(
        isinstance(fault, Fail) for fault in faults
    )
    first = min(told, key=lambda each: each["rank"])
    if faults:
        assert found.identical and first["sent"] > 0
    else:
        assert first["sent"] == 0 and first["steps"] == 128

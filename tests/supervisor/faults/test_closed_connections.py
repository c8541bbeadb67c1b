"""Whose connection was closed has three heartbeats to speak by a new one; where most were closed, it is the network."""

from __future__ import annotations

import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted

from taut.core.failure_detector import HEARTBEAT_S
from taut.core.messages import Expulsion


def trained(workers: int, seconds: float = 20.0) -> Scripted:
    run = Scripted(workers=workers)
    run.train(*range(workers))
    run.pass_time(seconds, *range(workers))
    return run


def gone(run: Scripted) -> list[int]:
    return sorted(one.rank for one in run.roster(0).gone)


@pytest.mark.parametrize("seconds", [20.0, 60.0])
def test_a_closed_connection_is_a_death_after_three_heartbeats_whatever_was_learnt(seconds: float) -> None:
    run = trained(3, seconds)
    run.cluster.closed(b"1", run.now)
    run.pass_time(3 * HEARTBEAT_S - 0.2, 0, 2)
    assert gone(run) == []
    run.pass_time(0.4, 0, 2)
    assert gone(run) == [1]
    assert "its connection was closed" in run.told("gone")


@settings(max_examples=some(40), deadline=None)
@given(st.floats(0.0, 3 * HEARTBEAT_S - 0.2), st.integers(1, 5))
def test_who_speaks_again_in_time_stays(after_s: float, times: int) -> None:
    run = trained(3)
    for _ in range(times):
        run.cluster.closed(b"1", run.now)
        run.pass_time(after_s, 0, 2)
        run.beat(0, 1, 2)
    run.pass_time(3.0, 0, 2)
    assert gone(run) == [], "the silence after that is judged as any other"


@settings(max_examples=some(40), deadline=None)
@given(st.integers(2, 6), st.data())
def test_where_most_were_closed_silence_alone_decides(workers: int, data: st.DataObject) -> None:
    run = trained(workers)
    closed = data.draw(st.sets(st.integers(0, workers - 1), min_size=1))
    for rank in closed:
        run.cluster.closed(b"%d" % rank, run.now)
    run.pass_time(2.0, *(rank for rank in range(workers) if rank not in closed))
    given_up = {rank for rank in range(workers) if run.heard(rank, Expulsion)}
    assert given_up == (closed if 2 * len(closed) <= workers else set())


def test_connections_that_are_nobodys_or_of_who_is_gone_mean_nothing() -> None:
    run = trained(3)
    run.exit(1)
    for name in (b"1", b"stranger"):
        run.cluster.closed(name, run.now)
    run.pass_time(3.0, 0, 2)
    assert gone(run) == [1]

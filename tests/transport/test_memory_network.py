"""Faults come from the seed alone, and are the ones that were asked for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.messages import SUPERVISOR
from taut.errors import Misuse
from taut.transport.memory import MemoryNetwork


def run(n: int = 200, **faults) -> list[tuple[int, bytes]]:
    """Two senders, one receiver, ``n`` messages each; what arrives, in order."""
    network = MemoryNetwork(capacity=10_000, **faults)
    ends = [network.transport(rank) for rank in range(3)]
    for rank in (0, 1):
        ends[rank].admit(network.member(2))
        ends[2].admit(network.member(rank))
    for i in range(n):
        for rank in (0, 1):
            assert ends[rank].send(2, [b"%d" % i])
    arrived = []
    while network.pending:
        assert network.deliver() == 1
        arrived += [(sender, frames[0]) for sender, frames in ends[2].receive(None)]
    assert network.deliver(5) == 0
    return arrived


@given(
    seed=st.integers(0, 2**32),
    duplicate=st.sampled_from([0.0, 0.3]),
    drop=st.sampled_from([0.0, 0.3]),
    delay=st.integers(0, 9),
)
def test_the_seed_decides_everything(seed, duplicate, drop, delay) -> None:
    faults = {"seed": seed, "duplicate": duplicate, "drop": drop, "delay": delay}
    arrived = run(30, **faults)
    assert arrived == run(30, **faults)
    sent = {(rank, b"%d" % i) for i in range(30) for rank in (0, 1)}
    assert set(arrived) <= sent
    if not drop:
        assert set(arrived) == sent
    if not duplicate:
        assert len(arrived) == len(set(arrived))


def test_each_fault_happens_about_as_often_as_asked() -> None:
    n = 500
    assert 0.05 < 1 - len(run(n, seed=1, drop=0.1)) / (2 * n) < 0.15
    assert 0.05 < len(run(n, seed=1, duplicate=0.1)) / (2 * n) - 1 < 0.15
    assert run(seed=1) != run(seed=2)


@given(st.integers(0, 2**32), st.integers(0, 9))
def test_order_within_links_can_be_kept(seed, delay) -> None:
    arrived = run(30, seed=seed, reorder=False, delay=delay)
    for rank in (0, 1):
        assert [int(body) for sender, body in arrived if sender == rank] == list(range(30))
    mixed = run(30, seed=seed)
    assert [int(body) for sender, body in mixed if sender == 0] != list(range(30))


def test_a_delay_is_bounded() -> None:
    network = MemoryNetwork(seed=3, delay=5, reorder=False)
    a, b = network.transport(0), network.transport(1)
    a.admit(network.member(1))
    b.admit(network.member(0))
    assert a.send(1, [b"x"])
    assert b.receive(None) == []  # with a seed it never waits
    assert network.pending == 1
    assert network.deliver(10) == 1
    assert [frames for _, frames in b.receive(0)] == [[b"x"]]


def test_what_is_under_way_to_the_forgetful_or_the_closed_is_lost() -> None:
    network = MemoryNetwork(seed=0)
    a, b = network.transport(0), network.transport(1)
    a.admit(network.member(1))
    b.admit(network.member(0))
    assert a.send(1, [b"x"])
    b.forget(0)
    assert network.deliver(10) == 1
    assert b.receive(0) == []
    b.admit(network.member(0))
    assert a.send(1, [b"y"])
    b.close()
    assert network.deliver(10) == 1
    assert a.send(1, [b"z"]) is False
    again = network.transport(1)
    again.admit(network.member(0))
    assert a.send(1, [b"w"])
    network.deliver()
    assert [frames for _, frames in again.receive(0)] == [[b"w"]]


def test_the_supervisor_needs_no_admission() -> None:
    network = MemoryNetwork()
    worker = network.transport(4)
    assert worker.send(SUPERVISOR, [b"too early"]) is False
    supervisor = network.supervisor()
    assert worker.send(SUPERVISOR, [b"hello", b""])
    assert supervisor.receive(None) == [(b"4", [b"hello", b""])]
    assert supervisor.send(b"4", [b"welcome"])
    assert supervisor.send(b"5", [b"nobody"]) is False
    assert supervisor.send(b"\x01?", [b"nobody"]) is False
    assert worker.receive(None) == [(SUPERVISOR, [b"welcome"])]
    supervisor.wake()
    assert supervisor.receive(None) == []
    supervisor.close()
    supervisor.close()


def test_faults_need_a_seed() -> None:
    with pytest.raises(Misuse, match="seed=0"):
        MemoryNetwork(drop=0.1)

"""Links that are slower than they are: n bytes over a link of r take at least n / r."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.core.messages import SUPERVISOR, Member
from taut.quantities import LinkSpeed, parse_link
from taut.testing import FakeClock
from taut.testing.checks.transport_check import CHECKS, Network
from taut.transport.keys import WorkerKeys
from taut.transport.limited import LimitedTransport
from taut.transport.memory import MemoryNetwork
from taut.transport.transport import Transport
from taut.transport.zmq.transport import ZmqTransport

FAST = LinkSpeed(100e9, 1e-4)


def over_memory() -> Network:
    network = MemoryNetwork()
    return lambda rank: (LimitedTransport(network.transport(rank), FAST), network.member(rank))


def over_zeromq() -> Network:
    def make(rank: int) -> tuple[Transport, Member]:
        keys = WorkerKeys.generate()
        transport = ZmqTransport(keys)
        return LimitedTransport(transport, FAST), Member(rank, transport.address, keys.public_key)

    return make


@pytest.mark.parametrize("network", [over_memory, over_zeromq])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_limited_transport_keeps_the_contract(check: Callable[[Network], None], network: Callable[[], Network]) -> None:
    check(network())


TICK_S = 0.01


def about(*times_s: float) -> list[object]:
    """Return what matches these times: not before, and within a tick after."""
    return [pytest.approx(at_s + TICK_S / 2, abs=TICK_S / 2 + 1e-9) for at_s in times_s]


class World:
    """Workers with links of one speed, in virtual time."""

    def __init__(self, workers: int, link: str) -> None:
        self.clock, network = FakeClock(), MemoryNetwork(capacity=1000)
        self.transports = [
            LimitedTransport(network.transport(rank), parse_link(link), self.clock) for rank in range(workers)
        ]
        for one in range(workers):
            for other in range(workers):
                if one != other:
                    self.transports[one].admit(network.member(other))
        self.delivered: list[tuple[float, int, int, int]] = []  # when, from, to, bytes

    def look(self) -> None:
        for rank, transport in enumerate(self.transports):
            for sender, frames in transport.receive(0):
                self.delivered.append((self.clock.now(), sender, rank, sum(map(len, frames))))

    def run(self, seconds: float, tick_s: float = TICK_S) -> None:
        for _ in range(round(seconds / tick_s)):
            self.clock.advance(tick_s)
            self.look()


def test_bytes_take_as_long_as_the_link_says() -> None:
    world = World(2, "8mbit,50ms")  # a megabyte per second
    assert all(world.transports[0].send(1, [bytes(100_000)]) for _ in range(5))
    world.run(1.0)
    assert [at for at, *_ in world.delivered] == about(0.15, 0.25, 0.35, 0.45, 0.55)


def test_all_traffic_of_a_worker_shares_its_up_link_and_its_down_link() -> None:
    fan_out, fan_in = World(3, "8mbit"), World(3, "8mbit")
    for to in (1, 2):
        fan_out.transports[0].send(to, [bytes(200_000)])
        fan_in.transports[to].send(0, [bytes(200_000)])
    for world in (fan_out, fan_in):
        world.run(1.0)
        assert [at for at, *_ in world.delivered] == about(0.2, 0.4)


def test_both_directions_are_free_of_each_other() -> None:
    world = World(2, "8mbit")
    for rank in (0, 1):
        world.transports[rank].send(1 - rank, [bytes(300_000)])
    world.run(1.0)
    assert [at for at, *_ in world.delivered] == about(0.3, 0.3)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 2), st.integers(0, 50_000), st.floats(0.0, 0.1)),
        min_size=1,
        max_size=30,
    )
)
def test_no_link_ever_carries_more_than_its_rate(sends: list[tuple[int, int, int, float]]) -> None:
    world, rate = World(3, "8mbit,5ms"), 1e6
    for source, shift, size, pause_s in sends:
        assert world.transports[source].send((source + shift) % 3, [bytes(size)])
        world.clock.advance(pause_s)
        world.look()
    world.run(3.0, 0.05)
    assert len(world.delivered) == len(sends)
    for rank in range(3):
        for end in (1, 2):  # of what was sent, and of what came
            total = sum(each[3] for each in world.delivered if each[end] == rank)
            last = max((each[0] for each in world.delivered if each[end] == rank), default=0.0)
            assert total / rate <= last + 1e-9
    for source in range(3):
        for to in range(3):
            sent = [size for s, shift, size, _ in sends if (s, (s + shift) % 3) == (source, to)]
            assert [each[3] for each in world.delivered if each[1:3] == (source, to)] == sent


def test_a_sender_is_held_back_and_told_when_there_is_room() -> None:
    world = World(2, "8mbit")
    sent = 0
    while world.transports[0].send(1, [bytes(1000)]):
        sent += 1
    assert 1 < sent < 100
    world.run(0.01)
    assert world.transports[0].send(1, [bytes(1000)])


@pytest.mark.parametrize("stamp", [float("nan"), float("inf"), -1e300, 1e300])
def test_a_peer_that_lies_about_the_time_is_delivered_all_the_same(stamp: float) -> None:
    clock, network = FakeClock(), MemoryNetwork()
    liar, honest = network.transport(0), LimitedTransport(network.transport(1), parse_link("8mbit"), clock)
    liar.admit(network.member(1))
    honest.admit(network.member(0))
    assert liar.send(1, [struct.pack("<d", stamp), b"late"])
    assert liar.send(1, [b"without a time"])
    arrived = honest.receive(0)
    clock.advance(601.0)
    arrived += honest.receive(0)
    assert sorted(frames for _, frames in arrived) == [[b"late"], [b"without a time"]]


def test_the_supervisor_is_not_limited() -> None:
    network = MemoryNetwork()
    supervisor, worker = network.supervisor(), LimitedTransport(network.transport(0), parse_link("1kbit"), FakeClock())
    assert worker.send(SUPERVISOR, [bytes(10_000)])
    assert [len(frames[0]) for _, frames in supervisor.receive(0)] == [10_000]
    assert supervisor.send(b"0", [bytes(10_000)])
    assert [sender for sender, _ in worker.receive(0)] == [SUPERVISOR]

"""Both transports pass the same suite."""

from collections.abc import Callable

import pytest

from taut.core.messages import Member
from taut.testing.checks.transport_check import CHECKS, Network, check_transport
from taut.transport.keys import WorkerKeys
from taut.transport.memory import MemoryNetwork
from taut.transport.transport import Transport
from taut.transport.zmq.transport import ZmqTransport


def memory() -> Network:
    network = MemoryNetwork()
    return lambda rank: (network.transport(rank), network.member(rank))


def zeromq() -> Network:
    def make(rank: int) -> tuple[Transport, Member]:
        keys = WorkerKeys.generate()
        transport = ZmqTransport(keys)
        return transport, Member(rank, transport.address, keys.public_key)

    return make


@pytest.mark.parametrize("network", [memory, zeromq])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_transport_keeps_the_contract(check: Callable[[Network], None], network: Callable[[], Network]) -> None:
    check(network())


def test_the_suite_catches_a_transport_that_swallows_messages() -> None:
    class Lossy:
        def __init__(self, inner: Transport) -> None:
            self.inner, self.sent = inner, 0

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

        def send(self, to: int, frames: list[bytes]) -> bool:
            self.sent += 1
            return True if self.sent == 2 else self.inner.send(to, frames)

    def network() -> Network:
        make = memory()

        def lossy(rank: int) -> tuple[Transport, Member]:
            transport, member = make(rank)
            return Lossy(transport), member

        return lossy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("taut.testing.checks.transport_check.DEADLINE_S", 0.2)
        with pytest.raises(AssertionError):
            check_transport(network)

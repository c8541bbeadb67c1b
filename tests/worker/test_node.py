"""The communication thread ends when it is told to, whoever listens; no wait is for ever."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from taut.communication.transport import Envelope
from taut.core.messages import Done, Member
from taut.errors import SupervisorLost
from taut.strategies.asynchronous import Asynchronous
from taut.testing import FakeClock
from taut.worker.node import Node


class Deaf:
    """A transport whose supervisor takes nothing."""

    address = "memory://deaf"

    def __init__(self) -> None:
        self.woken, self.closed = threading.Event(), False

    def admit(self, member: Member) -> None: ...

    def forget(self, rank: int) -> None: ...

    def send(self, to: int, frames: Sequence[bytes]) -> bool:
        return False

    def receive(self, timeout_s: float | None) -> list[Envelope]:
        self.woken.wait(timeout_s)
        self.woken.clear()
        return []

    def wake(self) -> None:
        self.woken.set()

    def close(self, linger_s: float = 0.0) -> None:
        self.closed = True


def test_closing_does_not_wait_for_a_supervisor_that_takes_nothing() -> None:
    transport = Deaf()
    node = Node(transport, lambda _: Asynchronous(merge=b"".join))
    node.start()
    node.say(Done())
    node.close(linger_s=0.2)
    assert transport.closed


def waiting_node(clock: FakeClock) -> Node:
    """A worker that has a neighbour, and whose supervisor fell silent long ago."""
    node = Node(Deaf(), lambda _: Asynchronous(merge=b"".join), clock=clock)
    node.seat(0, [])
    node.facts.silent_since_s = clock.now()
    clock.advance(10 * node.supervisor_patience_s)
    return node


def test_without_a_supervisor_the_others_are_waited_for_but_not_for_ever() -> None:
    clock = FakeClock()
    node, began_s = waiting_node(clock), clock.now()
    with pytest.raises(SupervisorLost, match="no supervisor says who lives"):
        node.wait(lambda _: False, lambda: clock.advance(50.0), needs_supervisor=False)
    assert node.supervisor_patience_s < clock.now() - began_s < 2 * node.supervisor_patience_s


def test_others_who_ever_took_long_are_waited_for_longer() -> None:
    clock = FakeClock()
    node = waiting_node(clock)
    node.facts.silent_since_s, silent_s = None, node.facts.silent_since_s
    long_s, waits = 3 * node.supervisor_patience_s, iter([False, True])
    node.wait(lambda _: next(waits), lambda: clock.advance(long_s), needs_supervisor=False)
    node.facts.silent_since_s, began_s = silent_s, clock.now()
    node.wait(lambda _: clock.now() - began_s > 2 * long_s, lambda: clock.advance(long_s / 2), needs_supervisor=False)

"""The communication thread ends when it is told to, whoever listens."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from taut.communication.transport import Envelope
from taut.core.messages import Done, Member
from taut.strategies.asynchronous import Asynchronous
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

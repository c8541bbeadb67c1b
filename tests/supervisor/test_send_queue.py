"""Messages that cannot be sent wait their turn; those for the gone are dropped."""

from __future__ import annotations

from collections.abc import Sequence

from taut.core.messages import Drain, Pulse, Start, SupervisorMessage
from taut.supervisor.send_queue import SendQueue
from taut.transport.framing import decode


class Door:
    """A socket that is open or shut."""

    address = "nowhere"

    def __init__(self) -> None:
        self.open = False
        self.passed: list[object] = []

    def send(self, connection: bytes, frames: Sequence[bytes]) -> bool:
        if self.open:
            self.passed.append(decode(frames, SupervisorMessage)[0])
        return self.open

    def receive(self, timeout_s: float | None) -> list[tuple[bytes, list[bytes]]]:
        return []

    def wake(self) -> None: ...

    def close(self, linger_s: float = 0.0) -> None: ...


def test_what_waits_is_sent_in_order_and_not_overtaken() -> None:
    door = Door()
    outlet = SendQueue(door)
    assert not outlet.send(b"1", Start(), ())
    assert not outlet.send(b"1", Pulse(), ())
    door.open = True
    assert not outlet.send(b"1", Drain("enough"), ()), "something waits already"
    assert door.passed == []
    outlet.retry(lambda connection: True)
    assert door.passed == [Start(), Drain("enough")], "a late Pulse is of no use"
    assert outlet.send(b"1", Pulse(), ())


def test_what_waits_for_the_gone_is_dropped() -> None:
    door = Door()
    outlet = SendQueue(door)
    outlet.send(b"1", Start(), ())
    outlet.retry(lambda connection: False)
    door.open = True
    outlet.retry(lambda connection: True)
    assert door.passed == []

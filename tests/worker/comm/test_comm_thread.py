"""The communication thread ends when it is told to, whoever listens; no wait is for ever."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from taut.core.messages import SUPERVISOR, Done, Heartbeat, Member, Pulse, Returned, WorkerMessage
from taut.errors import SupervisorLost
from taut.strategies.broadcast.asynchronous import Asynchronous
from taut.testing import FakeClock
from taut.transport.framing import decode, encode
from taut.transport.transport import Transport
from taut.worker.comm.comm_thread import CommThread
from taut.worker.comm.dispatcher import Dispatcher


class Deaf(Transport):
    """A transport whose supervisor takes nothing."""

    address = "memory://deaf"

    def __init__(self) -> None:
        self.woken, self.closed = threading.Event(), False

    def admit(self, member: Member) -> None: ...

    def forget(self, rank: int) -> None: ...

    def send(self, to: int, frames: Sequence[bytes]) -> bool:
        return False

    def receive(self, timeout_s: float | None) -> list[tuple[int, list[bytes]]]:
        self.woken.wait(timeout_s)
        self.woken.clear()
        return []

    def wake(self) -> None:
        self.woken.set()

    def close(self, linger_s: float = 0.0) -> None:
        self.closed = True


def test_closing_does_not_wait_for_a_supervisor_that_takes_nothing() -> None:
    transport = Deaf()
    node = CommThread(Dispatcher(transport, lambda _: Asynchronous(merge=b"".join)))
    node.start()
    node.say(Done())
    node.close(linger_s=0.2)
    assert transport.closed


def waiting_node(clock: FakeClock) -> CommThread:
    """A worker that has a neighbour, and whose supervisor fell silent long ago."""
    node = CommThread(Dispatcher(Deaf(), lambda _: Asynchronous(merge=b"".join), clock=clock))
    node.join_alone(0, [])
    node.status.silent_since_s = clock.now()
    clock.advance(10 * node.supervisor.patience_s)
    return node


def test_without_a_supervisor_the_others_are_waited_for_but_not_for_ever() -> None:
    clock = FakeClock()
    node, began_s = waiting_node(clock), clock.now()
    with pytest.raises(SupervisorLost, match="no supervisor says who lives"):
        node.wait(lambda _: False, lambda: clock.advance(50.0), needs_supervisor=False)
    assert node.supervisor.patience_s < clock.now() - began_s < 2 * node.supervisor.patience_s


def test_others_who_ever_took_long_are_waited_for_longer() -> None:
    clock = FakeClock()
    node = waiting_node(clock)
    node.status.silent_since_s, silent_s = None, node.status.silent_since_s
    long_s, waits = 3 * node.supervisor.patience_s, iter([False, True])
    node.wait(lambda _: next(waits), lambda: clock.advance(long_s), needs_supervisor=False)
    node.status.silent_since_s, began_s = silent_s, clock.now()
    node.wait(lambda _: clock.now() - began_s > 2 * long_s, lambda: clock.advance(long_s / 2), needs_supervisor=False)


class Heard(Deaf):
    """One whose supervisor takes everything, and says what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[object] = []
        self.arriving: list[tuple[int, list[bytes]]] = []

    def send(self, to: int, frames: Sequence[bytes]) -> bool:
        message, _ = decode(list(frames), WorkerMessage)
        self.sent += [] if isinstance(message, Heartbeat) else [message]
        return True

    def receive(self, timeout_s: float | None) -> list[tuple[int, list[bytes]]]:
        arrived, self.arriving = self.arriving, []
        return arrived


def test_a_worker_says_where_it_stands_once_for_each_loss_whichever_pulse_tells_it() -> None:
    transport, clock = Heard(), FakeClock()
    node = CommThread(Dispatcher(transport, lambda _: Asynchronous(merge=b"".join), clock=clock))
    node.join_alone(0, [])
    node.supervisor.standing = lambda: Returned(0, "training", 0, [], [])

    def answers(*pulses: Pulse) -> int:
        transport.sent.clear()
        transport.arriving += [(SUPERVISOR, encode(pulse, ())) for pulse in pulses]
        node.dispatcher.work(0.0)
        return sum(isinstance(message, Returned) for message in transport.sent)

    assert answers(Pulse()) == 0
    assert answers(Pulse(lost=1), Pulse(lost=1)) == 1, "they were under way together"
    assert answers(Pulse(lost=1)) == 0
    assert answers(Pulse(lost=3)) == 1, "the one with 2 was lost"
    assert answers(Pulse(term=1, lost=3)) == 1, "another life, which counts anew"
    assert answers(Pulse(term=1, lost=3), Pulse(lost=4)) == 0

    node.status.silent_since_s = clock.now()
    clock.advance(300.0)
    assert answers(Pulse(term=1, lost=3)) == 0
    assert node.status.silent_since_s is None and node.status.heard_again_s == clock.now()

"""Whether the supervisor still lives, as a worker judges it: silence counts only while the worker itself could hear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from taut.core.messages import Pulse, Statistics, WorkerMessage
from taut.testing import FakeClock
from taut.transport.framing import decode
from taut.worker.comm.run_status import RunStatus
from taut.worker.comm.supervisor_client import SupervisorClient


class Taken:
    """A transport that takes everything, while it has ``room``."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.room = True

    def send(self, to: int, frames: Sequence[bytes]) -> bool:
        if self.room:
            self.sent.append(decode(list(frames), WorkerMessage)[0])
        return self.room


def told_for(seconds: float) -> tuple[SupervisorClient, FakeClock]:
    clock, transport = FakeClock(), Taken()
    sent: Any = transport
    link = SupervisorClient(sent, RunStatus(), clock, Statistics, list)
    for _ in range(int(2 * seconds)):
        clock.advance(0.5)
        link.heard(Pulse(told=0), clock.now())
        link.beat(clock.now(), list)
    return link, clock


@pytest.mark.parametrize("away_s", [3.0, 20.0, 600.0])
def test_the_time_in_which_this_process_stood_still_is_no_silence(away_s: float) -> None:
    """It was stopped, or something held the interpreter: what it was told meanwhile is in its queue."""
    link, clock = told_for(60.0)
    clock.advance(away_s)
    link.beat(clock.now(), list)
    assert link.status.silent_since_s is None


def test_a_supervisor_that_says_nothing_while_this_worker_beats_is_taken_for_gone() -> None:
    link, clock = told_for(60.0)
    for _ in range(40):
        clock.advance(0.5)
        link.beat(clock.now(), list)
    assert link.status.silent_since_s is not None


def test_a_sketch_is_said_once() -> None:
    """It is 2 kB, and made anew every few seconds: with each heartbeat it took a seventh of a link of 256 kbit/s."""
    clock, transport, made = FakeClock(), Taken(), [[1.0]]
    sent: Any = transport
    link = SupervisorClient(sent, RunStatus(), clock, Statistics, lambda: made[-1])

    def beat() -> None:
        clock.advance(0.5)
        link.beat(clock.now(), list)

    beat()
    beat()
    made.append([2.0])
    transport.room = False
    beat()
    transport.room = True
    beat()
    beat()
    assert [heartbeat.sketch for heartbeat in transport.sent] == [[1.0], [], [2.0], []]

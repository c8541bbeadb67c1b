"""Whether the supervisor still lives, as a worker judges it: silence counts only while the worker itself could hear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from taut.core.messages import Pulse, Statistics
from taut.testing import FakeClock
from taut.worker.comm.run_status import RunStatus
from taut.worker.comm.supervisor_client import SupervisorClient


class Taken:
    """A transport that takes everything."""

    def send(self, to: int, frames: Sequence[bytes]) -> bool:
        return True


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

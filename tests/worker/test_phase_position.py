"""Where a worker is in a run that changes its strategy, and what a newcomer learns of that with the state."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.core.messages import Message, PhaseDone
from taut.errors import MalformedMessage
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.snapshot import Snapshot, pack, unpack
from taut.worker.optimizer.moments import Moments
from taut.worker.phases import Phases
from taut.worker.time_split import Stopwatch


class Here:
    """A worker in such a run, and what it said to the supervisor. Of its node, no more than streams need to be made."""

    def __init__(self, strategy: str, number: int = 0) -> None:
        self.said: list[Message] = []
        self.model = torch.nn.Linear(2, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.phases = Phases({"strategy": strategy}, FlatParams(self.model), None)
        self.phases.enter(number)
        status = SimpleNamespace(phase=0)
        self.comm: Any = SimpleNamespace(rank=0, say=self.said.append, phase_protocol=None, status=status, pump=bool)
        self.phases.begin(self.comm, Stopwatch())
        self.phases.replica.found(2)
        self.phases.attach(self.optimizer)

    def step(self) -> None:
        self.model(torch.ones(1, 2)).sum().backward()
        self.optimizer.step()
        self.phases.stepped(self.optimizer)

    def given(self) -> Snapshot:
        return unpack(pack(self.comm.complement(self.phases.replica.state())))


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(0, 8), st.integers(0, 6))
def test_a_newcomer_counts_on_from_where_its_donor_is(length: int, before: int, after: int) -> None:
    """It says that it is through when the two of them have made the phase's steps, and it says so once."""
    strategy = f"async for {length} steps, then averaging"
    donor, newcomer = Here(strategy), Here(strategy)
    for _ in range(before):
        donor.step()
    newcomer.phases.joined(donor.given())
    for _ in range(after):
        newcomer.step()
    assert newcomer.phases.steps == before + after
    through = before + after >= length
    assert newcomer.said == [PhaseDone(1)] * through
    assert newcomer.phases.reached == through
    assert donor.said == [PhaseDone(1)] * (before >= length)


def test_moments_go_with_the_state_where_they_will_be_averaged() -> None:
    donor = Here("async for 5 steps, then sync")
    donor.step()
    newcomer = Here("async for 5 steps, then sync")
    newcomer.phases.joined(donor.given())
    newcomer.phases.attach(newcomer.optimizer)
    assert Moments(newcomer.optimizer).gather().tolist() == Moments(donor.optimizer).gather().tolist() == [1.0] * 3
    assert not Here("async for 5 steps, then averaging").given().training
    assert not Here("sync for 5 steps, then async", number=1).given().training, "that phase is over"


def test_who_comes_back_keeps_its_own_moments() -> None:
    donor, back = Here("async for 5 steps, then sync"), Here("async for 5 steps, then sync")
    donor.step()
    back.step()
    back.step()
    own = Moments(back.optimizer).gather().tolist()
    back.phases.joined(donor.given())
    back.phases.attach(back.optimizer)
    assert Moments(back.optimizer).gather().tolist() == own != Moments(donor.optimizer).gather().tolist()


def test_a_phase_that_is_none_is_refused() -> None:
    with pytest.raises(MalformedMessage, match="phase 2 of a run of 2"):
        Here("sync for 5 steps, then async", number=2)
    with pytest.raises(MalformedMessage):
        unpack(pack(Snapshot(b"abcd", steps=-1)))

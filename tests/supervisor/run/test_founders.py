"""Initial states that are equal, by their hashes, are not sent; one that differs is replaced by a donor's."""

from __future__ import annotations

from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from scripted import Scripted, hello

from taut.core.messages import Donor, Ready, Start
from taut.supervisor.run.cluster import Cluster
from taut.supervisor.run.plan import RunPlan

FOUNDER = Donor(-1)


def join(run: Scripted, rank: int, initial: str) -> None:
    run.say(rank, msgspec.structs.replace(hello(100 + rank), initial=initial))


def donor(run: Scripted, rank: int) -> Donor | None:
    told = run.heard(rank, Donor)
    return told[-1] if told else None


def test_workers_with_the_founder_s_state_need_no_donor() -> None:
    run = Scripted(workers=3)
    for rank in range(3):
        join(run, rank, "same")
    assert [donor(run, rank) for rank in range(3)] == [FOUNDER] * 3
    run.say(0, Ready())
    assert donor(run, 1) == FOUNDER, "also when another worker could give it"
    run.say(1, Ready())
    run.say(2, Ready())
    assert run.heard(2, Start)


def test_one_that_differs_waits_for_a_donor() -> None:
    run = Scripted(workers=3)
    for rank, initial in enumerate(("same", "other", "same")):
        join(run, rank, initial)
    assert [donor(run, rank) for rank in range(3)] == [FOUNDER, None, FOUNDER]
    run.say(0, Ready())
    assert donor(run, 1) == Donor(0)


def test_states_that_were_not_told_are_sent() -> None:
    run = Scripted(workers=2)
    run.join(0, 1)
    assert [donor(run, rank) for rank in range(2)] == [FOUNDER, None]


def test_the_run_does_not_start_before_a_founder_is_ready_and_not_without_telling_it() -> None:
    run = Scripted(workers=1)
    join(run, 0, "same")
    join(run, 1, "same")
    run.say(0, Ready())
    assert not run.heard(0, Start), "worker 1 keeps the initial state, which must not be too old"
    run.say(1, Ready())
    assert run.heard(0, Start) and run.heard(1, Start)


def test_one_that_comes_after_the_start_takes_a_donor_s_state() -> None:
    run = Scripted(workers=1)
    join(run, 0, "same")
    run.say(0, Ready())
    join(run, 1, "same")
    assert donor(run, 1) == Donor(0)


def test_a_founder_with_another_state_than_the_survivors_takes_theirs() -> None:
    run = Scripted(workers=3)
    for rank, initial in enumerate(("a", "b", "b")):
        join(run, rank, initial)
    run.say(0, Ready())
    run.exit(0)  # worker 1 has its state already, and is about to say so
    assert donor(run, 1) == FOUNDER == donor(run, 2), "as far as the supervisor knows, nobody has the state"
    run.cluster.members.workers[1].initial = "a"  # it had taken the state of worker 0
    run.say(1, Ready())
    assert donor(run, 2) == Donor(1)


def test_of_a_resumed_run_the_initial_states_are_not_the_run_s() -> None:
    run = Scripted(workers=2)
    run.cluster = Cluster(RunPlan("quiet-otter", 7, 2, "{}", "host", resumed=True), 0.0)
    join(run, 0, "same")
    join(run, 1, "same")
    assert [donor(run, rank) for rank in range(2)] == [FOUNDER, None]


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_in_whatever_order_they_come_all_have_one_state_at_the_start(initials: list[str], chance: Random) -> None:
    run = Scripted(workers=len(initials))
    state: dict[int, str] = {}  # what each would really have
    ready: set[int] = set()
    coming = list(range(len(initials)))
    while len(ready) < len(initials):
        if coming and (not state or chance.random() < 0.5):
            join(run, len(initials) - len(coming), initials[coming.pop(0)])
        for rank in range(len(initials) - len(coming)):
            told = donor(run, rank)
            able = told is not None and (told == FOUNDER or told.rank in state)
            if told is not None and able and rank not in ready and chance.random() < 0.5:
                state[rank] = initials[rank] if told == FOUNDER else state[told.rank]
                ready.add(rank)
                run.say(rank, Ready())
    assert len(set(state.values())) == 1
    assert all(run.heard(rank, Start) for rank in ready)

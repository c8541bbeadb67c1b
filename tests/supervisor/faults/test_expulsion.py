"""Who is sent away, and who is not: accusations, what the supervisor cannot read itself, and the user's dismissals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import Scripted

from taut.core.messages import (
    Complaint,
    Dispute,
    Done,
    Drain,
    Expulsion,
    Failed,
    Heartbeat,
    LeaseRequest,
    Leave,
    Statistics,
)
from taut.errors import Misuse
from taut.supervisor.faults.complaints import MOST_EXCESS, MOST_REFUSED, WINDOW_S
from taut.supervisor.faults.disputes import GRACE_S
from taut.supervisor.faults.expulsion import RENEWAL_S
from taut.supervisor.run.cluster import Cluster
from taut.supervisor.run.lifecycle import IDLE_S
from taut.supervisor.run.plan import RunPlan


def training(workers: int, topology: str = "complete") -> Scripted:
    run = Scripted(workers)
    run.cluster = Cluster(RunPlan("quiet-otter", 7, workers, "{}", "host", topology=topology), run.now)
    run.train(*range(workers))
    return run


def accuse(run: Scripted, accuser: int, accused: int, refused: int = MOST_REFUSED + 1, excess: int = 0) -> None:
    complaint = Complaint(accused, refused, excess, "numbers that are not finite")
    run.say(accuser, Heartbeat(Statistics(), [], [complaint]))


def live(run: Scripted) -> set[int]:
    return {worker.rank for worker in run.cluster.members.live()}


@given(st.integers(2, 7), st.data())
def test_more_than_half_of_the_others_expel_and_no_fewer(workers: int, data) -> None:
    run = training(workers)
    accusers = data.draw(st.sets(st.integers(1, workers - 1)))
    for accuser in accusers:
        accuse(run, accuser, 0)
    expelled = len(accusers) >= 2 and 2 * len(accusers) > workers - 1
    assert (0 not in live(run)) is expelled
    assert set(range(1, workers)) <= live(run), "who accuses stays"
    assert bool(run.heard(0, Expulsion)) is expelled
    if expelled:
        assert {gone.rank for gone in run.roster(1).gone} == {0}


@given(
    st.integers(2, 7), st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2**40), st.integers(0, 2**40)), max_size=20)
)
def test_a_single_liar_gets_nobody_expelled(workers: int, lies) -> None:
    run = training(workers)
    for accused, refused, excess in lies:
        run.now += 20.0
        accuse(run, 1, accused, refused, excess)
    assert live(run) == set(range(workers))


def test_two_workers_cannot_expel_each_other_but_it_is_shown() -> None:
    run = training(2)
    accuse(run, 1, 0)
    assert live(run) == {0, 1}
    assert "worker 0: 101 messages refused by worker 1: numbers that are not finite" in run.told("refused")
    assert run.cluster.members.rows(run.now)[0].refused == 101


def test_where_few_hear_a_worker_those_judge() -> None:
    run = training(6, topology="ring")
    accuse(run, 3, 0)  # is not wired to it
    accuse(run, 1, 0)
    assert 0 in live(run)
    accuse(run, 5, 0)
    assert 0 not in live(run)


def test_old_sins_are_forgiven() -> None:
    run = training(3)
    for _ in range(5):
        for accuser in (1, 2):
            before = run.cluster.expulsion.complaints.accounts.get(0, {}).get(accuser)
            accuse(run, accuser, 0, (before.refused if before else 0) + MOST_REFUSED - 1)
        run.now += WINDOW_S + 1.0
    assert live(run) == {0, 1, 2}


def test_a_flood_counts_apart_from_what_is_refused() -> None:
    run = training(3)
    for accuser in (1, 2):
        accuse(run, accuser, 0, refused=0, excess=MOST_EXCESS)
    assert 0 in live(run)
    for accuser in (1, 2):
        accuse(run, accuser, 0, refused=0, excess=MOST_EXCESS + 1)
    assert 0 not in live(run)
    assert f"{MOST_EXCESS} too many for worker 1 and dropped" in run.told("refused")


def test_what_the_supervisor_cannot_read_needs_no_witness() -> None:
    run = training(2)
    for _ in range(MOST_REFUSED):
        run.take(run.cluster.malformed(b"0", "rubbish", run.now))
    assert live(run) == {0, 1}
    run.take(run.cluster.malformed(b"0", "rubbish", run.now))
    assert live(run) == {1}
    run.take(run.cluster.flooded(b"1", MOST_EXCESS + 1, run.now))
    assert live(run) == set()


def test_accusations_do_not_fill_the_disk() -> None:
    run = training(3)
    for number in range(2_000):
        run.say(1, Heartbeat(Statistics(), [], [Complaint(0, 10**9 * number, 0, "x"), Complaint(2, number, 0, "y")]))
    assert len(run.told("refused").splitlines()) < 40


# --------------------------------------------------------------------------------------------- the user's dismissals


def test_a_dismissed_worker_is_told_and_goes_and_the_others_go_on() -> None:
    run = training(3)
    run.take(run.cluster.dismiss(1, "needed elsewhere", run.now))
    assert [leave.reason for leave in run.heard(1, Leave)] == ["needed elsewhere"]
    assert live(run) == {0, 1, 2}
    run.say(1, Done(leaving=True))
    assert live(run) == {0, 2}
    assert run.cluster.outcome is None
    assert not run.cluster.ledger.failures


def test_it_is_told_again_where_that_may_have_been_lost() -> None:
    run = training(2)
    run.take(run.cluster.dismiss(1, "needed elsewhere", run.now))
    run.pass_time(3.0, 0, 1)
    run.now += 30.0  # an unusual gap
    run.beat(1)
    assert len(run.heard(1, Leave)) == 2


def test_one_that_does_not_go_can_be_expelled() -> None:
    run = training(3)
    run.take(run.cluster.dismiss(1, "hostile", run.now, expel=True))
    assert live(run) == {0, 2}
    assert run.heard(1, Expulsion)


@pytest.mark.parametrize(
    ("prepare", "rank", "why"),
    [
        (lambda run: None, 7, "a worker of this run: 0, 1"),
        (lambda run: run.exit(1), 1, "which is gone"),
        (lambda run: run.exit(1), 0, "the last one"),
        (lambda run: run.take(run.cluster.dismiss(1, "first", run.now)), 0, "the last one"),
        (lambda run: run.take(run.cluster.drain("enough", run.now)), 1, "is ending"),
        (lambda run: run.done(1), 1, "no data left"),
    ],
)
def test_who_cannot_be_dismissed(prepare, rank: int, why: str) -> None:
    run = training(2)
    prepare(run)
    with pytest.raises(Misuse, match=why):
        run.cluster.dismiss(rank, "go", run.now)


# ------------------------------------------------------------------------------- different updates of one origin


def dispute(run: Scripted, accuser: int, origin: int, other: int) -> None:
    run.say(accuser, Heartbeat(Statistics(), [], disputes=[Dispute(origin, other)]))


def let_settle(run: Scripted, *beating: int) -> None:
    run.now += GRACE_S
    for rank in beating:
        run.beat(rank)


def test_an_origin_that_tells_everybody_something_else_is_expelled_and_the_others_take_one_state() -> None:
    run = training(4)
    for one, other in ((0, 1), (1, 2), (2, 0)):
        dispute(run, one, 3, other)
    assert live(run) == {0, 1, 2, 3}, "not before all had time to compare"
    let_settle(run, 0)
    assert live(run) == {0}
    assert [told.welcome for rank in (1, 2, 3) for told in run.heard(rank, Expulsion)] == [True, True, False]
    assert "different updates to different workers" in run.heard(3, Expulsion)[0].reason


@given(st.integers(3, 6), st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20))
def test_a_single_liar_about_updates_gets_nobody_expelled(workers: int, lies) -> None:
    run = training(workers)
    for origin, other in lies:
        dispute(run, 1, origin, other)
        let_settle(run, 0)
    assert all(told.welcome for rank in range(workers) for told in run.heard(rank, Expulsion)), "all may come back"
    assert len(live(run) - {1}) >= workers - 2, "one other at most"


def test_the_one_that_all_others_contradict_takes_their_state() -> None:
    run = training(4)
    for one in (0, 2):
        dispute(run, one, 3, 1)
    let_settle(run, 0)
    assert live(run) == {0, 2, 3}
    assert run.heard(1, Expulsion)[0].welcome
    assert "of worker 3's updates worker 1 holds others than the rest" in run.told("dispute")


def test_a_dispute_in_a_run_that_is_ending_is_shown_once() -> None:
    run = training(4)
    run.done(0, 1, 2, 3)
    for _ in range(3):
        dispute(run, 0, 3, 1)
        let_settle(run, 0)
    assert live(run) == {0, 1, 2, 3}
    assert run.told("dispute").count("holds others than the rest") == 1


def test_a_run_whose_trainers_failed_does_not_wait_for_who_never_trained() -> None:
    run = training(3)
    for rank in (0, 1):
        run.say(rank, LeaseRequest(0, 64, 8, last=True))
        run.say(rank, Failed("the loss is not finite"))
    assert run.cluster.outcome is None
    for _ in range(round(IDLE_S) + 2):
        run.now += 1.0
        run.say(2, Heartbeat(Statistics(), []))
        run.take(run.cluster.tick(run.now))
    assert run.outcome.exit_code != 0
    assert "no worker is left that trains: worker 2 has made no step" in run.outcome.error


def test_the_end_of_the_run_waits_for_who_takes_its_state_anew() -> None:
    run = training(4)
    for one in (0, 2):
        dispute(run, one, 3, 1)
    let_settle(run, 0)
    assert live(run) == {0, 2, 3}
    run.take(run.cluster.drain("enough", run.now))
    assert not run.heard(0, Drain), "worker 1 is about to come back"
    run.now += RENEWAL_S + 1.0
    run.take(run.cluster.tick(run.now))
    assert run.heard(0, Drain), "but not for ever"

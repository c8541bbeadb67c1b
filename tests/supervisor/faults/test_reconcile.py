"""A supervisor that was killed comes back from its store: nothing that was finished is dealt twice."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Restarted, digest

from taut.core.messages import (
    Done,
    Drain,
    Heartbeat,
    Lease,
    LeaseDone,
    LeaseRequest,
    NoLease,
    Pulse,
    Returned,
    Statistics,
    Welcome,
)
from taut.errors import Misuse
from taut.supervisor.run.actions import SendMessage
from taut.supervisor.storage.previous_run import read_previous_run
from taut.supervisor.storage.store_writer import FILE

LENGTH = 400


def leases_of(actions: list[object]) -> list[Lease]:
    return [action.message for action in actions if isinstance(action, SendMessage) and isinstance(action.message, Lease)]


def test_ranks_roster_and_start_survive():
    run = Restarted(workers=2)
    run.train(0, 1)
    run.come_back()
    run.say(0, Heartbeat(Statistics(), []))
    assert [send.message.term for send in run.sent[b"0"] if isinstance(send.message, Pulse)][-1:] == [1]
    assert run.cluster.recovering
    for rank in (0, 1):
        run.say(rank, Returned(rank, "ready", 0, [], []))
    assert not run.cluster.recovering
    assert run.cluster.state == "training"
    run.join(2)
    assert [send.message.rank for send in run.sent[b"2"] if isinstance(send.message, Welcome)] == [2]


def test_no_secret_is_kept():
    run = Restarted(workers=1)
    connection = b"\x01" + b"secret-of-worker"
    from scripted import hello

    run.take(run.cluster.heard(connection, hello(100), (), 0.0))
    assert connection not in run.data and b"secret" not in run.data


def test_one_who_died_with_the_supervisor_is_given_up_and_the_others_go_on():
    run = Restarted(workers=2)
    run.train(0, 1)
    lease = leases_of(run.say(1, LeaseRequest(0, LENGTH, 10, True)))[0]
    run.come_back()
    run.say(0, Returned(0, "ready", 0, [], []))
    run.say(0, LeaseRequest(0, LENGTH, 10, True))
    for _ in range(400):
        run.now += 0.25
        run.say(0, Heartbeat(Statistics(), []))
        run.take(run.cluster.tick(run.now))
        if not run.cluster.recovering:
            break
    assert not run.cluster.recovering
    assert not run.cluster.members.workers[1].live
    run.say(0, LeaseRequest(0, LENGTH, 10, True))
    assert run.heard(0, Lease)[-1].lo == lease.lo  # what the dead one held comes first


def test_the_end_of_a_run_survives():
    run = Restarted(workers=2)
    run.train(0, 1)
    for rank in (0, 1):
        run.say(rank, Done())
    for rank in (0, 1):
        run.say(rank, digest())
    run.come_back()  # the verdict was given, the model was not written
    for rank in (0, 1):
        run.say(rank, Returned(rank, "done", 0, [], []))
    for rank in (0, 1):
        assert any(isinstance(send.message, Drain) for send in run.sent[b"%d" % rank])
        run.say(rank, digest())
    assert run.cluster.ending.verdict is not None
    assert run.cluster.ending.verdict.identical


def test_who_has_spoken_gets_leases_at_once_and_what_the_silent_hold_stays_theirs():
    run = Restarted(workers=2)
    run.train(0, 1)
    run.say(1, LeaseRequest(0, LENGTH, 10, True))
    theirs = run.heard(1, Lease)[0]
    run.come_back()
    run.say(0, LeaseRequest(0, LENGTH, 10, True))
    assert not run.heard(0, Lease), "it has not said where it stands"
    run.say(0, Returned(0, "ready", 0, [], [], run.cluster.leases.issued))
    dealt = []
    while not run.cluster.admission.held:
        run.say(0, LeaseRequest(0, LENGTH, 10, True))
        dealt = [(lease.lo, lease.hi) for lease in run.heard(0, Lease)]
    assert run.cluster.recovering and not run.heard(0, NoLease)
    assert sorted(index for lo, hi in dealt for index in range(lo, hi)) == list(range(theirs.hi, LENGTH))
    run.say(0, LeaseRequest(0, LENGTH, 10, False))
    assert run.heard(0, NoLease), "who has other passes to go on with does not wait for one that may be dead"


def test_one_who_died_with_the_supervisor_is_given_up_as_fast_as_by_the_old_one():
    """Its rhythm is remembered: half a second, where a detector that begins anew would take 2 s for granted."""
    silences = []
    for dies in (False, True):
        run = Restarted(workers=2)
        run.train(0, 1)
        run.pass_time(60, 0, 1)
        run.keep()
        if dies:
            run.come_back()
            run.say(0, Returned(0, "ready", 0, [], []))
        began = run.now
        while run.cluster.members.workers[1].live:
            run.pass_time(0.5, 0)
        silences.append(run.now - began)
    assert silences[1] <= silences[0] + 0.5


def test_the_run_lasts_from_its_start_however_often_the_supervisor_dies():
    run = Restarted(workers=1)
    run.train(0)
    run.pass_time(10, 0)
    run.keep()
    run.pass_time(0.7, 0)
    run.now += 30.0  # it is away
    run.come_back()
    run.say(0, Returned(0, "done", 0, [], []))
    run.drained(0)
    run.take(run.cluster.saved("model", "", run.now))
    assert abs(run.outcome.wall_s - 40.7) < 0.2


seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=some(150), deadline=None)
@given(seeds, st.integers(1, 4), st.integers(0, 3))
def test_nothing_that_was_finished_is_dealt_twice_and_all_is_trained(seed, workers, deaths):
    """Random requests and reports; all is kept now and then, and what concerns leases before it is sent; the supervisor
    dies at any message, and with it what was on the way; workers speak again one by one, while others are served."""
    chance = random.Random(seed)
    run = Restarted(workers=workers)
    run.train(*range(workers))
    held: dict[int, dict[int, Lease]] = {rank: {} for rank in range(workers)}
    finished: dict[int, list[Lease]] = {rank: [] for rank in range(workers)}
    times_trained = [0] * LENGTH
    lose = 0.0

    def take(actions: list[object]) -> None:
        for action in actions:
            if isinstance(action, SendMessage) and isinstance(action.message, Lease) and chance.random() >= lose:
                held[int(action.connection)][action.message.lease] = action.message

    for _ in range(4000):
        if not run.cluster.leases.samples_undone and run.cluster.leases.passes:
            break
        rank = chance.randrange(workers)
        act = chance.random()
        if act < 0.1:
            run.keep()
        elif act < 0.13 and deaths:
            deaths -= 1
            lose = 1.0 if chance.random() < 0.5 else 0.0  # what it answers last does not arrive
            take(run.say(rank, LeaseRequest(0, LENGTH, 10, True)))
            lose = 0.0
            run.come_back()
        elif rank in run.cluster.admission.awaited and act < 0.5:
            issued = run.cluster.leases.issued
            take(run.say(rank, Returned(rank, "ready", 0, list(held[rank].values()), finished[rank], issued)))
        elif act < 0.5:
            take(run.say(rank, LeaseRequest(0, LENGTH, 10, True)))
        elif held[rank]:
            lease = held[rank].pop(chance.choice(list(held[rank])))
            finished[rank].append(lease)
            for index in range(lease.lo, lease.hi):
                times_trained[index] += 1
            take(run.say(rank, LeaseDone([lease.lease])))
    assert run.cluster.leases.samples_undone == 0
    assert times_trained == [1] * LENGTH
    assert run.cluster.leases.samples_again == 0


def test_a_run_that_is_not_this_users_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 100)
    with pytest.raises(Misuse, match="damaged"):
        read_previous_run(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    with pytest.raises(Misuse, match="may read and write"):
        read_previous_run(tmp_path)

"""What a broken connection took with it, either way, is found by counting, and made good; a supervisor that comes back
says nothing before it knows."""

from __future__ import annotations

import random

from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Restarted, Scripted, digest, hello

from taut.core.messages import (
    Done,
    Donor,
    Drain,
    Finish,
    Heartbeat,
    Lease,
    LeaseDone,
    LeaseRequest,
    Pulse,
    Returned,
    Roster,
    Saved,
    Statistics,
    Upload,
    Welcome,
)
from taut.supervisor.run.actions import SendMessage

LENGTH = 200


def beat(run: Scripted, rank: int, said: int) -> Pulse:
    run.say(rank, Heartbeat(Statistics(), [], said=said))
    return run.heard(rank, Pulse)[-1]


def test_counts_fit_while_nothing_is_lost() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    for rank in (0, 1):
        pulse = beat(run, rank, said=2)  # Hello and Ready
        told = [send for send in run.sent[b"%d" % rank] if not isinstance(send.message, Pulse)]
        assert not pulse.lost and pulse.told == len(told)


def test_what_a_worker_said_and_did_not_come_is_noticed_once_and_told_in_every_pulse_from_then_on() -> None:
    run = Scripted(workers=1)
    run.train(0)
    assert [beat(run, 0, said).lost for said in (2, 3, 3, 5, 5)] == [0, 1, 1, 2, 2]


@settings(max_examples=some(100), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_whatever_is_lost_every_sample_is_trained_and_counted(seed: int, workers: int) -> None:
    """Leases, requests and reports are lost at random, and so are pulses; some of them get through in the end."""
    chance = random.Random(seed)
    run = Scripted(workers=workers)
    run.train(*range(workers))
    held: dict[int, dict[int, Lease]] = {rank: {} for rank in range(workers)}
    done: dict[int, dict[int, Lease]] = {rank: {} for rank in range(workers)}
    said = dict.fromkeys(range(workers), 2)
    told = {rank: len(run.sent[b"%d" % rank]) for rank in range(workers)}
    lost = dict.fromkeys(range(workers), 0)
    trained = [0] * LENGTH
    loss = 0.3

    def say(rank: int, message: LeaseRequest | LeaseDone | Returned) -> None:
        said[rank] += 1
        if chance.random() >= loss:
            take(run.say(rank, message))

    def take(actions: list[object]) -> None:
        for action in actions:
            assert isinstance(action, SendMessage) or not isinstance(action, Lease)
            if not isinstance(action, SendMessage) or isinstance(action.message, Pulse) or chance.random() < loss:
                continue
            rank = int(action.connection)
            told[rank] += 1
            if isinstance(action.message, Lease):
                held[rank][action.message.lease] = action.message

    for _ in range(3000):
        rank = chance.randrange(workers)
        act = chance.random()
        if act < 0.4:
            say(rank, LeaseRequest(0, LENGTH, 10, True))
        elif act < 0.8 and held[rank]:
            lease = held[rank].pop(chance.choice(sorted(held[rank])))
            done[rank][lease.lease] = lease
            for index in range(lease.lo, lease.hi):
                trained[index] += 1
            say(rank, LeaseDone([lease.lease]))
        else:
            take(run.say(rank, Heartbeat(Statistics(), [], said=said[rank])))
            pulse = run.heard(rank, Pulse)[-1]
            if chance.random() >= loss and (pulse.told, pulse.lost) != (told[rank], lost[rank]):
                told[rank], lost[rank] = pulse.told, pulse.lost
                standing = (list(held[rank].values()), list(done[rank].values()))
                say(rank, Returned(rank, "ready", 0, *standing, pulse.issued))
        if run.cluster.leases.passes and not run.cluster.leases.samples_undone:
            break
    assert run.cluster.leases.samples_undone == 0
    assert min(trained) == 1
    assert sum(trained) - LENGTH <= run.cluster.leases.samples_again


def test_a_lease_under_way_is_not_dealt_again() -> None:
    run = Scripted(workers=1)
    run.train(0)
    pulse = beat(run, 0, said=5)
    run.say(0, LeaseRequest(0, LENGTH, 10, True))  # crosses what the worker says of its standing
    run.say(0, Returned(0, "ready", 0, [], [], pulse.issued))
    assert len(run.cluster.leases.open) == 1 and not run.cluster.leases.returned


def test_the_end_is_told_again() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    for rank in (0, 1):
        run.say(rank, Done())
        assert run.heard(rank, Drain) or rank == 0
    for rank in (0, 1):
        run.say(rank, digest())
    finishes = len(run.heard(1, Finish))
    run.say(1, Returned(1, "done", 0, [], []))
    assert len(run.heard(1, Finish)) == finishes + 1
    total = 8
    run.say(0, Upload(0, total), b"1234")
    run.say(0, Returned(0, "done", 0, [], []))  # the rest was lost
    assert run.heard(0, Finish)[-1].have == 4
    run.say(0, Upload(6, total), b"78")  # of the previous attempt, and passed over
    run.say(0, Upload(0, total), b"1234")
    assert not run.saves
    run.say(0, Upload(4, total), b"5678")
    assert run.saves == [b"12345678"]
    run.take(run.cluster.saved("model", "", run.now))
    told = len(run.heard(1, Saved))
    run.say(1, Returned(1, "done", 0, [], []))
    assert len(run.heard(1, Saved)) == told + 1


def test_rosters_of_a_later_life_are_later_than_any_of_the_former() -> None:
    run = Restarted(workers=2)
    run.train(0, 1)
    before = max(roster.version for roster in run.heard(0, Roster))
    run.come_back()
    run.say(0, Returned(0, "ready", 0, [], []))
    rosters = run.heard(0, Roster)
    assert rosters and min(roster.version for roster in rosters) > before
    assert [member.ready for member in rosters[0].members] == [True, True], "who was ready is, though it has not spoken"


def test_newcomers_are_let_in_before_all_have_spoken() -> None:
    run = Restarted(workers=2)
    run.train(0, 1)
    run.come_back()
    run.say(1, Returned(1, "ready", 0, [], []))
    run.say(2, hello(102))
    assert [welcome.rank for welcome in run.heard(2, Welcome)] == [2]
    assert [donor.rank for donor in run.heard(2, Donor)] == [1], "not of one who may have died meanwhile"


def test_a_supervisor_may_die_while_it_is_coming_back() -> None:
    run = Restarted(workers=2)
    run.train(0, 1)
    for rank in (0, 1):
        run.say(rank, LeaseRequest(0, 100, 10, True))
    first, second = (run.heard(rank, Lease)[0] for rank in (0, 1))
    run.come_back()
    run.say(1, Returned(1, "ready", 0, [], [second], run.cluster.leases.issued))
    run.come_back()  # worker 0 has not spoken yet
    run.say(1, Returned(1, "ready", 0, [], [second], run.cluster.leases.issued))
    run.say(0, Returned(0, "ready", 0, [first], [], run.cluster.leases.issued))
    leases = run.cluster.leases
    assert leases.passes[0].done == second.hi - second.lo and leases.passes[0].dealt == second.hi
    assert list(leases.open) == [first.lease] and not leases.returned


def test_what_was_taken_back_and_dealt_again_is_not_dealt_a_third_time() -> None:
    run = Restarted(workers=2)
    run.train(0, 1)
    run.say(0, LeaseRequest(0, 10, 10, True))
    run.say(0, Returned(0, "ready", 0, [], [], run.cluster.leases.issued))  # it never came
    run.say(1, LeaseRequest(0, 10, 10, True))
    new = run.heard(1, Lease)[0]
    run.come_back()
    run.say(1, Returned(1, "ready", 0, [], [new], run.cluster.leases.issued))
    run.say(0, Returned(0, "ready", 0, [], [], run.cluster.leases.issued))
    leases = run.cluster.leases
    assert leases.samples_undone == 0 and not leases.open and not leases.returned
    assert leases.samples_again == 0

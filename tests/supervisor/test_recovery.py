"""A supervisor that was killed comes back from its store: nothing that was finished is dealt twice."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted, digest

from taut.core.messages import (
    Done,
    Drain,
    Heartbeat,
    Lease,
    LeaseDone,
    LeaseRequest,
    Pulse,
    Returned,
    Statistics,
    Welcome,
)
from taut.supervisor.actions import Send
from taut.supervisor.memory import keep, recall

LENGTH = 400


class Restarted(Scripted):
    """A scripted run whose supervisor can die and come back."""

    term = 0

    def kept(self) -> bytes:
        return keep(self.cluster, self.now)

    def come_back(self, data: bytes) -> None:
        self.term += 1
        self.sent.clear()
        self.cluster = recall(self.cluster.plan, data, self.term, self.now)


def leases_of(actions: list[object]) -> list[Lease]:
    return [action.message for action in actions if isinstance(action, Send) and isinstance(action.message, Lease)]


def test_ranks_roster_and_start_survive():
    run = Restarted(workers=2)
    run.train(0, 1)
    data = run.kept()
    run.come_back(data)
    run.say(0, Heartbeat(Statistics(), []))
    assert [send.message.term for send in run.sent[b"0"] if isinstance(send.message, Pulse)][-1:] == [1]
    assert run.cluster.recovery is not None
    for rank in (0, 1):
        run.say(rank, Returned(rank, "ready", 0, [], [], 0))
    assert run.cluster.recovery is None
    assert run.cluster.state == "training"
    run.join(2)
    assert [send.message.rank for send in run.sent[b"2"] if isinstance(send.message, Welcome)] == [2]


def test_no_secret_is_kept():
    run = Restarted(workers=1)
    connection = b"\x01" + b"secret-of-worker"
    from scripted import hello

    run.take(run.cluster.heard(connection, hello(100), (), 0.0))
    assert connection not in run.kept() and b"secret" not in run.kept()


def test_one_who_died_with_the_supervisor_is_given_up_and_the_others_go_on():
    run = Restarted(workers=2)
    run.train(0, 1)
    lease = leases_of(run.say(1, LeaseRequest(0, LENGTH, 10, True)))[0]
    run.come_back(run.kept())
    run.say(0, Returned(0, "ready", 0, [], [], LENGTH))
    run.say(0, LeaseRequest(0, LENGTH, 10, True))
    for _ in range(400):
        run.now += 0.25
        run.say(0, Heartbeat(Statistics(), []))
        run.take(run.cluster.tick(run.now))
        if run.cluster.recovery is None:
            break
    assert run.cluster.recovery is None
    assert not run.cluster.members.workers[1].live
    dealt = [send.message for send in run.sent[b"0"] if isinstance(send.message, Lease)]
    assert (dealt[0].lo, dealt[0].hi) == (lease.lo, lease.hi)  # what the dead one held comes first


def test_the_end_of_a_run_survives():
    run = Restarted(workers=2)
    run.train(0, 1)
    for rank in (0, 1):
        run.say(rank, Done())
    for rank in (0, 1):
        run.say(rank, digest())
    data = run.kept()
    run.come_back(data)  # the verdict was given, the model was not written
    for rank in (0, 1):
        run.say(rank, Returned(rank, "done", 0, [], [], 0))
    for rank in (0, 1):
        assert any(isinstance(send.message, Drain) for send in run.sent[b"%d" % rank])
        run.say(rank, digest())
    assert run.cluster.ending.verdict is not None
    assert run.cluster.ending.verdict.identical


seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=150, deadline=None)
@given(seeds, st.integers(1, 4), st.integers(0, 3))
def test_nothing_that_was_finished_is_dealt_twice_and_all_is_trained(seed, workers, deaths):
    """Random requests and reports; the store is written now and then; the supervisor dies at any message, and with it
    what was on the way."""
    chance = random.Random(seed)
    run = Restarted(workers=workers)
    run.train(*range(workers))
    held: dict[int, dict[int, Lease]] = {rank: {} for rank in range(workers)}
    finished: dict[int, list[Lease]] = {rank: [] for rank in range(workers)}
    times_trained = [0] * LENGTH
    data = run.kept()
    asked: set[int] = set()

    def take(actions: list[object]) -> None:
        for action in actions:
            if isinstance(action, Send) and isinstance(action.message, Lease) and chance.random() > lose:
                held[int(action.connection)][action.message.lease] = action.message
                asked.discard(int(action.connection))

    lose = 0.0
    for _ in range(4000):
        if not run.cluster.leases.samples_undone and run.cluster.leases.passes:
            break
        rank = chance.randrange(workers)
        act = chance.random()
        if act < 0.1:
            data = run.kept()
        elif act < 0.13 and deaths:
            deaths -= 1
            run.come_back(data)
            data = run.kept()
            asked.clear()
            for each in range(workers):
                said = Returned(each, "ready", 0, list(held[each].values()), finished[each], LENGTH)
                take(run.say(each, said))
        elif act < 0.5:
            lose = 0.3 if deaths and chance.random() < 0.2 else 0.0  # lost with a supervisor that dies right after
            take(run.say(rank, LeaseRequest(0, LENGTH, 10, True)))
            if lose and deaths:
                deaths -= 1
                run.come_back(data)
                data = run.kept()
                lose = 0.0
                for each in range(workers):
                    said = Returned(each, "ready", 0, list(held[each].values()), finished[each], LENGTH)
                    take(run.say(each, said))
            lose = 0.0
        elif held[rank]:
            lease = held[rank].pop(chance.choice(list(held[rank])))
            finished[rank].append(lease)
            for place in range(lease.lo, lease.hi):
                times_trained[place] += 1
            take(run.say(rank, LeaseDone([lease.lease])))
    assert run.cluster.leases.samples_undone == 0
    assert times_trained == [1] * LENGTH

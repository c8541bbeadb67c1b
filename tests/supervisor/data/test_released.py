"""What a worker that was given up had begun is guessed; when it is back, the count of samples trained twice is exact."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted, hello

from taut.core.messages import (
    Heartbeat,
    Lease,
    LeaseDone,
    LeaseRequest,
    NoLease,
    Ready,
    Reserve,
    Returned,
    Statistics,
    own_lease,
)

LENGTH, BATCH, SPEED = 4000, 10, 100


def ask(run: Scripted, rank: int) -> None:
    run.say(rank, LeaseRequest(0, LENGTH, BATCH, last=True, until=1))


def training(run: Scripted, seconds: int, *ranks: int) -> None:
    """They beat and say how fast they are."""
    for _ in range(2 * seconds):
        run.now += 0.5
        for rank in ranks:
            samples = round(SPEED * run.now)
            said = run.cluster.members.workers[rank].heard
            run.say(rank, Heartbeat(Statistics(samples // BATCH, samples, wall_s=run.now), [], said=said))
        run.take(run.cluster.tick(run.now))


def given_up(run: Scripted, rank: int, *others: int) -> None:
    while run.cluster.members.workers[rank].live:
        training(run, 1, *others)


def finish(run: Scripted, rank: int, trained: Counter[int], read: int = 0) -> None:
    """One worker trains on all that is left."""
    ask(run, rank)
    for _ in range(5000):
        told = run.sent[b"%d" % rank]
        if read == len(told):
            training(run, 1, rank)
            continue
        message, read = told[read].message, read + 1
        if isinstance(message, Lease):
            trained.update(range(message.lo, message.hi))
            run.say(rank, LeaseDone([message.lease]))
            ask(run, rank)
        elif isinstance(message, NoLease):
            return
    raise AssertionError("no end")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 60), st.integers(0, 3), st.booleans(), st.randoms(use_true_random=False))
def test_the_count_is_what_was_trained_twice(own: int, begun: int, late: bool, chance: Random) -> None:
    """Worker 1 is cut off with leases and a reserve, and trains on ``own`` batches of that, without a word."""
    run, trained = Scripted(workers=2), Counter[int]()
    run.train(0, 1)
    for _ in range(3):
        ask(run, 1)
    training(run, 3, 0, 1)
    dealt = run.heard(1, Lease)
    reserve = run.heard(1, Reserve)[-1].spans if run.heard(1, Reserve) else []
    touched = dealt[:begun]
    left = [(epoch, index, index + BATCH) for epoch, lo, hi in reserve for index in range(lo, hi, BATCH)]
    touched += [Lease(own_lease(1, number), *span) for number, span in enumerate(left[:own])]
    for lease in touched:
        trained.update(range(lease.lo, lease.hi))
    read = len(run.sent[b"0"])
    given_up(run, 1, 0)

    def come_back() -> None:
        run.say(2, msgspec.structs.replace(hello(101), was=1))
        run.say(2, Ready())
        run.say(2, Returned(1, "gone", 0, [], touched))

    if late:  # when all has been dealt again
        finish(run, 0, trained, read)
        come_back()
    else:
        come_back()
        run.say(2, LeaseRequest(0, LENGTH, BATCH, last=False, until=1)) if chance.random() < 0.5 else None
        for lease in run.heard(2, Lease):
            trained.update(range(lease.lo, lease.hi))
            run.say(2, LeaseDone([lease.lease]))
        finish(run, 0, trained, read)
    assert set(trained) == set(range(LENGTH))
    assert run.cluster.leases.samples_again == sum(trained.values()) - LENGTH


def test_only_the_process_that_was_given_up_says_what_it_had_trained_on() -> None:
    run = Scripted(workers=3)
    run.train(0, 1, 2)
    ask(run, 1)
    given_up(run, 1, 0, 2)
    ask(run, 0)
    again = run.cluster.leases.samples_again
    assert again == run.heard(1, Lease)[0].hi
    run.say(2, Returned(1, "gone", 0, [], []))
    assert run.cluster.leases.samples_again == again
    assert "worker 2 returned as worker 1" in run.told("odd")
    run.say(3, msgspec.structs.replace(hello(101), was=1))
    run.say(3, Returned(1, "gone", 0, [], []))
    assert run.cluster.leases.samples_again == 0

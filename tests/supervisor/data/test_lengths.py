"""How long a pass is, is said by most workers: one that gives another length loses its place, whoever asked first."""

from __future__ import annotations

from random import Random

import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Restarted, Scripted

from taut.core.messages import Done, Expulsion, Lease, LeaseDone, LeaseRequest, NoLease
from taut.supervisor.data.lease_server import MOST_AHEAD
from taut.supervisor.data.lengths import WAIT_S, Lengths

LENGTH, ODD, BATCH = 4096, 7, 64


def ask(run: Scripted, rank: int, epoch: int, length: int = LENGTH, until: int = 0) -> None:
    run.say(rank, LeaseRequest(epoch, length, BATCH, last=False, until=until))


def live(run: Scripted) -> set[int]:
    return {worker.rank for worker in run.cluster.members.live()}


def finish_pass(run: Scripted, ranks: list[int], epoch: int) -> set[int]:
    """The workers train on all of a pass; which places they were dealt, each once."""
    indices: set[int] = set()
    waiting = list(ranks)
    read = {rank: len(run.sent.get(b"%d" % rank, [])) for rank in ranks}
    for rank in ranks:
        ask(run, rank, epoch)
    for _ in range(10_000):
        if not waiting:
            return indices
        run.now += 0.01
        run.take(run.cluster.tick(run.now))
        for rank in list(waiting):
            told = run.sent[b"%d" % rank][read[rank] :]
            read[rank] += len(told)
            for one in told:
                if isinstance(one.message, Lease):
                    assert one.message.epoch == epoch
                    its = set(range(one.message.lo, one.message.hi))
                    assert not indices & its
                    indices |= its
                    run.say(rank, LeaseDone([one.message.lease]))
                    ask(run, rank, epoch)
                elif isinstance(one.message, NoLease):
                    waiting.remove(rank)
    raise AssertionError(f"workers {waiting} stand still in pass {epoch}")


@pytest.mark.parametrize("reports", [False, True], ids=["it keeps the lease", "it reports the lease as done"])
def test_one_request_for_a_later_pass_with_another_length_does_not_stop_the_others(reports: bool) -> None:
    run = Scripted(workers=3)
    run.train(0, 1, 2)
    ask(run, 2, 3, ODD)
    if reports:
        run.say(2, LeaseDone([lease.lease for lease in run.heard(2, Lease)]))
    for epoch in range(5):
        assert finish_pass(run, [0, 1], epoch) == set(range(LENGTH))
    assert live(run) == {0, 1}
    reason = run.heard(2, Expulsion)[0].reason
    assert f"{ODD} samples in pass 3: expected {LENGTH} samples, as 2 of the workers have" in reason
    done = {epoch: each.done for epoch, each in run.cluster.leases.passes.items() if each.begun}
    assert done == dict.fromkeys(range(5), LENGTH)


def test_who_asks_first_does_not_decide() -> None:
    run = Scripted(workers=3)
    run.train(0, 1, 2)
    ask(run, 2, 0, ODD)
    ask(run, 0, 0)
    assert not run.heard(0, Lease), "nobody knows yet who is right"
    assert live(run) == {0, 1, 2}
    ask(run, 1, 0)
    assert live(run) == {0, 1}
    run.pass_time(0.1)
    assert len(run.heard(0, Lease)) == len(run.heard(1, Lease)) == 1


def test_requests_that_name_several_passes_count_for_each_of_them() -> None:
    run = Scripted(workers=3)
    run.train(0, 1, 2)
    ask(run, 0, 0, until=9)
    ask(run, 1, 0, until=9)
    ask(run, 2, 8, ODD)  # the others have not come there
    ask(run, 0, 8, until=9)
    assert live(run) == {0, 1}
    assert run.heard(0, Lease)[-1].epoch == 8


def test_two_that_disagree_are_both_told_what_each_has() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    ask(run, 0, 0, 1000)
    ask(run, 1, 0, 999)
    for rank in (0, 1):
        reason = run.heard(rank, Expulsion)[0].reason
        assert "worker 0 has 1000 samples, worker 1 has 999 samples" in reason
        assert "give every worker the same data set" in reason
    assert run.outcome.exit_code == 1
    assert "worker 0 has 1000 samples, worker 1 has 999 samples" in run.outcome.error


def test_those_who_never_ask_are_not_waited_for_without_end() -> None:
    run = Scripted(workers=5)
    run.train(*range(5))
    ask(run, 4, 0, ODD)
    ask(run, 0, 0)
    ask(run, 1, 0)
    run.pass_time(WAIT_S - 1, *range(5))
    assert live(run) == set(range(5))
    run.pass_time(2, *range(5))
    assert live(run) == {0, 1, 2, 3}
    assert run.heard(0, Lease)
    assert run.heard(1, Lease)


def test_when_the_liar_is_gone_what_it_asked_for_is_forgotten() -> None:
    run = Scripted(workers=3)
    run.train(0, 1, 2)
    ask(run, 2, 0, ODD)
    run.say(2, Done(leaving=True))
    ask(run, 0, 0)
    assert run.heard(0, Lease)
    assert finish_pass(run, [1], 0) | set(range(run.heard(0, Lease)[0].hi)) == set(range(LENGTH))


def test_who_gives_two_lengths_for_one_pass_is_wrong() -> None:
    run = Scripted(workers=1)
    run.train(0)
    ask(run, 0, 0)
    ask(run, 0, 0, ODD)
    assert "expected 4096 samples, as it said before" in run.heard(0, Expulsion)[0].reason


def test_a_pass_that_was_trained_on_before_the_supervisor_died_keeps_its_length() -> None:
    run = Restarted(workers=3)
    run.train(0, 1, 2)
    finish_pass(run, [0, 1], 0)
    run.keep()
    run.come_back()
    run.cluster.admission.awaited.clear()
    ask(run, 2, 0, ODD)
    run.pass_time(WAIT_S + 1, 0, 1, 2)
    assert live(run) == {0, 1}
    assert run.cluster.leases.passes[0].length == LENGTH


@given(st.integers(3, 6), st.randoms(use_true_random=False), st.integers(0, 3))
@settings(max_examples=some(100))
def test_one_liar_among_several_loses_its_place_and_nobody_else_does(workers: int, chance: Random, odd: int) -> None:
    run = Scripted(workers=workers)
    run.train(*range(workers))
    liar = chance.randrange(workers)
    honest = [rank for rank in range(workers) if rank != liar]
    for epoch in range(4):
        if epoch == odd:
            early = chance.sample(honest, chance.randrange(len(honest)))
            for rank in early:
                ask(run, rank, epoch)
            ask(run, liar, epoch, ODD)
        chance.shuffle(honest)
        if epoch < odd:
            finish_pass(run, honest, epoch)
    for rank in honest:
        ask(run, rank, odd)
    run.pass_time(0.1)
    assert live(run) == set(honest)
    for rank in honest:
        assert run.heard(rank, Lease)[-1].epoch == odd
    assert run.cluster.leases.passes[odd].length == LENGTH


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([10, 20, 30])), min_size=1, max_size=12), st.integers(1, 6))
def test_a_dispute_is_always_settled_in_time(said, founders) -> None:
    lengths = Lengths()
    for rank, length in said:
        lengths.vote(rank, 0, length)
    voters = {rank for rank, _ in said}
    ruling = lengths.rule(0, 10, {}, voters, founders, now=0.0)
    assert ruling is not None, "all have voted"
    given = lengths.votes[0]
    if ruling.length is None:
        assert set(ruling.wrong) == voters
    else:
        assert set(ruling.wrong) == {rank for rank in voters if given[rank] != ruling.length}
        supporters = [sum(given[rank] == length for rank in voters) for length in (10, 20, 30)]
        assert ruling.length == 10 or supporters[ruling.length // 10 - 1] == max(supporters)


def test_votes_on_which_most_agree_are_not_kept() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    for epoch in range(10):
        finish_pass(run, [0, 1], epoch)
    assert set(run.cluster.lease_server.lengths.votes) == {9}


def test_a_request_far_ahead_of_the_run_is_passed_over() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    for epoch in (MOST_AHEAD + 1, 2**31, 2**62):
        ask(run, 1, epoch)
    assert not run.heard(1, Lease)
    assert not run.cluster.leases.passes
    assert "worker 1, which is training, asked for pass 2147483648" in run.told("odd")
    ask(run, 1, MOST_AHEAD)
    assert run.heard(1, Lease)


def test_who_has_no_state_yet_is_dealt_nothing() -> None:
    run = Scripted(workers=2)
    run.join(0, 1)
    ask(run, 1, 0)
    assert not run.heard(1, Lease)
    assert "worker 1, which is joining, asked for pass 0" in run.told("odd")

"""Admission, the roster, donors, the start, and deaths: the state machine driven message by message."""

from __future__ import annotations

import pytest
from scripted import MODEL, Scripted, hello

from taut.core.messages import (
    PROTOCOL_VERSION,
    Done,
    Donor,
    Drain,
    Expulsion,
    Failed,
    Lease,
    LeaseDone,
    LeaseRequest,
    NoLease,
    Pulse,
    Ready,
    Refusal,
    Start,
    TensorSpec,
    Welcome,
)


def donors(run: Scripted, rank: int) -> list[int]:
    return [message.rank for message in run.heard(rank, Donor)]


def test_the_first_is_welcomed_told_the_roster_and_founds_the_run() -> None:
    run = Scripted()
    run.join(0)
    assert run.kinds(0) == ["Welcome", "Roster", "Donor"]
    assert run.heard(0, Welcome) == [Welcome(0, "quiet-otter", 7, 2, "{}")]
    assert donors(run, 0) == [-1]
    assert [member.rank for member in run.roster(0).members] == [0]


def test_a_newcomer_waits_for_a_donor_until_one_is_ready() -> None:
    run = Scripted()
    run.join(0, 1)
    assert donors(run, 1) == []
    run.say(0, Ready())
    assert donors(run, 1) == [0]


def test_everybody_hears_of_a_newcomer_under_a_new_version() -> None:
    run = Scripted()
    run.join(0)
    before = run.roster(0).version
    run.join(1)
    assert run.roster(0) == run.roster(1)
    assert run.roster(0).version > before
    assert [(one.rank, one.address) for one in run.roster(0).members] == [
        (0, "tcp://host:100"),
        (1, "tcp://host:101"),
    ]


def test_training_starts_when_all_expected_are_ready_and_later_ones_start_at_once() -> None:
    run = Scripted(workers=2)
    run.train(0)
    assert run.heard(0, Start) == []
    run.train(1)
    assert [len(run.heard(rank, Start)) for rank in (0, 1)] == [1, 1]
    assert run.cluster.state == "training"
    run.train(2)
    assert len(run.heard(2, Start)) == 1
    assert len(run.heard(0, Start)) == 1


def test_donors_are_shared_out() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    run.join(2, 3)
    assert donors(run, 2) + donors(run, 3) == [0, 1]


def test_a_donor_that_goes_is_replaced() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    run.join(2)
    run.exit(0)
    assert donors(run, 2) == [0, 1]
    run.say(2, Ready())
    run.exit(1)
    assert donors(run, 2) == [0, 1], "it has the state already"


def test_without_anybody_who_has_the_state_the_lowest_waiting_one_founds_the_run() -> None:
    run = Scripted(workers=3)
    run.train(0)
    run.join(1, 2)
    assert (donors(run, 1), donors(run, 2)) == ([0], [1]), "before the start, along a chain"
    run.exit(0)
    assert (donors(run, 1), donors(run, 2)) == ([0, -1], [1])
    run.say(1, Ready())
    assert donors(run, 2) == [1, 1]
    run.say(2, Ready())
    assert run.cluster.state == "training"


def test_a_founder_that_is_overtaken_takes_the_state_of_who_was_first() -> None:
    run = Scripted(workers=3)
    run.train(0)
    run.join(1, 2)
    run.exit(0)  # worker 2 already had its state: its Ready was under way
    run.say(2, Ready())
    assert donors(run, 1) == [0, -1, 2]


def test_when_the_state_of_a_trained_run_is_lost_the_run_fails_and_who_waits_is_told() -> None:
    run = Scripted(workers=1)
    run.train(0)
    run.join(1)
    run.exit(0)
    assert run.outcome.state == "failed"
    assert run.outcome.exit_code == 1
    assert len(run.heard(1, Expulsion)) == 1


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ([TensorSpec("a.weight", [3, 5], "float32", "trained"), MODEL[1]], ["a.weight", "3x5", "3x4"]),
        ([MODEL[0], TensorSpec("a.mean", [2], "float64", "buffer")], ["a.mean", "float64", "float32"]),
        (MODEL[:1], ["1 tensors", "expected 2", "a.mean"]),
        ([*MODEL, TensorSpec("b", [], "int64", "buffer")], ["3 tensors", "expected 2", "'b'"]),
    ],
)
def test_another_model_is_refused_naming_the_first_difference(other: list[TensorSpec], words: list[str]) -> None:
    run = Scripted()
    run.join(0)
    version = run.roster(0).version
    run.say(1, hello(101, other))
    assert run.kinds(1) == ["Refusal"]
    for word in [*words, "same script"]:
        assert word in run.heard(1, Refusal)[0].reason
    assert run.roster(0).version == version


def test_another_protocol_version_is_refused() -> None:
    run = Scripted()
    run.say(0, hello(100, version=PROTOCOL_VERSION + 1))
    assert f"expected {PROTOCOL_VERSION}" in run.heard(0, Refusal)[0].reason
    assert run.cluster.members.model is None, "a refused worker's model is nobody's"


def test_ranks_are_never_used_twice() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    run.exit(1)
    run.join(2)
    assert run.heard(2, Welcome)[0].rank == 2
    assert [one.rank for one in run.roster(2).gone] == [1]


def test_hello_said_twice_gets_the_same_answer() -> None:
    run = Scripted()
    run.join(0)
    run.join(0)
    assert run.kinds(0) == ["Welcome", "Roster", "Donor"] * 2
    assert run.heard(0, Welcome)[0] == run.heard(0, Welcome)[1]


def test_an_expected_worker_that_dies_before_the_start_is_not_waited_for() -> None:
    run = Scripted(workers=3)
    run.train(0, 1)
    run.exit(2, "exit code 1")  # it never said a word
    assert run.cluster.state == "training"
    assert len(run.heard(0, Start)) == 1
    assert run.cluster.ledger.script_failed


def test_a_joined_worker_that_dies_before_the_start_is_not_waited_for() -> None:
    run = Scripted(workers=3)
    run.train(0, 1)
    run.join(2)
    run.exit(2)
    assert run.cluster.state == "training"


def test_when_nobody_is_left_to_come_the_run_fails_and_says_why() -> None:
    run = Scripted(workers=2)
    run.exit(0, "exit code 1")
    assert run.outcomes == []
    run.exit(1, "finished", clean=True)
    assert run.outcome.state == "failed"
    assert run.outcome.exit_code == 1
    assert run.outcome.identical is None
    assert "exit code 1 without joining" in run.outcome.error
    assert len(run.outcome.failures) == 2


def test_a_refused_process_is_named_by_the_refusal_when_it_exits() -> None:
    run = Scripted(workers=2)
    run.train(0)
    run.say(1, hello(101, MODEL[:1]))
    run.exit(1, "exit code 1")
    assert "another model" in run.cluster.ledger.failures[0]
    assert run.cluster.state == "training"


def test_a_killed_worker_is_taken_from_the_roster_and_its_data_are_dealt_again() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    run.say(1, LeaseRequest(0, 10, 5, False))
    lost = run.heard(1, Lease)[0]
    run.exit(1)
    assert [(one.rank, one.reason) for one in run.roster(0).gone] == [(1, "killed by SIGKILL")]
    assert [one.rank for one in run.roster(0).members] == [0]
    run.say(0, LeaseRequest(0, 10, 5, False))
    again = run.heard(0, Lease)[0]
    assert (again.lo, again.hi) == (lost.lo, lost.hi)
    assert "5 samples are leased again" in run.told("gone")


def test_a_silent_worker_is_given_up_and_told_when_it_speaks_again() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    run.pass_time(40, 0, 1)
    run.pass_time(8, 0)
    assert [one.rank for one in run.roster(0).gone] == [1]
    assert run.roster(0).gone[0].reason.startswith("silent for ")
    before = len(run.heard(1, Expulsion))
    run.beat(1)
    assert len(run.heard(1, Expulsion)) == before + 1
    assert run.heard(1, Expulsion)[-1].reason.startswith("silent for ")
    assert run.cluster.state == "training"


def test_silence_while_the_supervisor_was_away_is_not_held_against_anyone() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    run.pass_time(40, 0, 1)
    run.now += 300
    run.cluster.paused(300, run.now)
    run.pass_time(2)
    assert len(run.cluster.members.live()) == 2
    run.pass_time(20, 0)
    assert [worker.rank for worker in run.cluster.members.live()] == [0]


def test_a_failed_script_goes_others_go_on_and_the_exit_code_tells() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    run.say(1, Failed("ValueError: no such file"))
    assert run.roster(0).gone[0].reason == "ValueError: no such file"
    run.beat(1)
    assert run.heard(1, Expulsion) == [], "it knows"
    run.exit(1, "exit code 1")
    run.done(0)
    run.drained(0)
    run.take(run.cluster.saved("m", "", run.now))
    assert run.outcome.state == "finished"
    assert run.outcome.exit_code == 1
    assert run.outcome.failures == ("worker 1: ValueError: no such file",)


def test_a_newcomer_that_cannot_take_over_the_state_is_refused_and_the_run_is_none_the_worse() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    run.join(2)
    run.say(2, Failed("Misuse: the optimizer SGD", unfit=True))
    assert run.roster(0).gone[0].reason == "refused: Misuse: the optimizer SGD"
    refused = [event.text for event in run.events if event.kind == "refused"]
    assert any("(process 102 on" in text and "the optimizer SGD" in text for text in refused)
    run.exit(2, "exit code 2")
    run.done(0, 1)
    run.drained(0, 1)
    run.take(run.cluster.saved("m", "", run.now))
    assert (run.outcome.exit_code, run.outcome.failures) == (0, ("worker 2: refused: Misuse: the optimizer SGD",))


def test_before_the_start_nobody_is_a_newcomer() -> None:
    run = Scripted(workers=2)
    run.join(0)
    run.say(0, Failed("no such file", unfit=True))
    assert run.cluster.ledger.script_failed


def test_last_words_that_arrive_after_the_news_of_the_end_still_count() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    run.take(run.cluster.exited(101, "exit code 1", False, run.now))
    run.take(run.cluster.tick(run.now))
    run.say(1, Failed("the loss is not finite"))
    run.pass_time(1, 0)
    assert run.roster(0).gone[0].reason == "the loss is not finite"


def test_a_worker_that_leaves_is_no_failure() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    run.say(1, Done(leaving=True))
    run.exit(1, "finished", clean=True)
    assert [(one.rank, one.reason) for one in run.roster(0).gone] == [(1, "left")]
    assert run.cluster.ledger.failures == []


def test_a_latecomer_with_another_data_set_is_turned_away_and_the_run_is_none_the_worse() -> None:
    run = Scripted(workers=1)
    run.train(0)
    run.say(0, LeaseRequest(0, 1000, 10, False))
    run.train(1)
    run.say(1, LeaseRequest(0, 999, 10, False))
    assert "999" in run.heard(1, Expulsion)[0].reason
    assert len(run.cluster.ledger.failures) == 1
    assert not run.cluster.ledger.script_failed


def test_a_last_request_is_held_until_the_others_are_done() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    run.say(0, LeaseRequest(0, 10, 5, True))
    run.say(1, LeaseRequest(0, 10, 5, True))
    run.say(0, LeaseDone([run.heard(0, Lease)[0].lease]))
    run.say(0, LeaseRequest(0, 10, 5, True))
    assert run.heard(0, NoLease) == []
    run.say(1, LeaseDone([run.heard(1, Lease)[0].lease]))
    assert run.heard(0, NoLease) == [NoLease(0)]


def test_who_is_done_is_dealt_nothing_that_it_had_asked_for() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    run.say(0, LeaseRequest(0, 10, 5, True))
    run.say(1, LeaseRequest(0, 10, 5, True))
    run.say(1, LeaseDone([run.heard(1, Lease)[0].lease]))
    run.say(1, LeaseRequest(0, 10, 5, True))  # held: the other one may leave something
    run.done(1)
    run.exit(0)
    assert len(run.heard(1, Lease)) == 1 and not run.cluster.leases.open


def test_a_held_request_gets_what_the_dead_leave() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    run.say(0, LeaseRequest(0, 10, 5, True))
    run.say(1, LeaseRequest(0, 10, 5, True))
    run.say(0, LeaseDone([run.heard(0, Lease)[0].lease]))
    run.say(0, LeaseRequest(0, 10, 5, True))
    run.exit(1)
    leases = run.heard(0, Lease)
    assert len(leases) == 2
    run.say(0, LeaseDone([leases[1].lease]))
    run.say(0, LeaseRequest(0, 10, 5, True))
    assert run.heard(0, NoLease) == [NoLease(0)]
    assert run.cluster.leases.samples_undone == 0


def test_a_held_request_of_the_dead_is_forgotten() -> None:
    run = Scripted(workers=3)
    run.train(0, 1, 2)
    run.say(0, LeaseRequest(0, 5, 5, True))
    run.say(1, LeaseRequest(0, 5, 5, True))
    run.exit(1)
    run.exit(0)
    assert run.heard(1, Lease) == []
    run.say(2, LeaseRequest(0, 5, 5, True))
    assert len(run.heard(2, Lease)) == 1


def test_heartbeats_are_answered_and_unexpected_messages_are_counted() -> None:
    run = Scripted(workers=1)
    run.train(0)
    run.beat(0)
    assert len(run.heard(0, Pulse)) == 1
    run.beat(5)  # nobody knows it
    run.drained(0)  # nobody asked for it
    run.take(run.cluster.malformed(b"0", "rubbish", run.now))
    assert run.cluster.ledger.oddities == 3
    assert run.sent.get(b"5") is None
    assert "rubbish" in run.told("odd")


def test_a_stranger_whose_message_cannot_be_read_is_refused() -> None:
    run = Scripted()
    run.take(run.cluster.malformed(b"9", "protocol version 7, expected 1", run.now))
    assert "protocol version 7" in run.heard(9, Refusal)[0].reason


def test_oddities_do_not_flood_the_record() -> None:
    run = Scripted()
    for _ in range(1000):
        run.beat(5)
    assert run.cluster.ledger.oddities == 1000
    assert len(run.events) < 40


def test_after_a_gap_a_worker_is_reminded_of_what_it_may_have_missed() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    run.pass_time(40, 0, 1)
    rosters = len(run.heard(0, Start))
    run.pass_time(3.0, 1)
    run.beat(0)
    assert len(run.heard(0, Start)) == rosters + 1
    run.take(run.cluster.drain("enough", run.now))
    assert len(run.heard(0, Drain)) == 1


def test_the_model_of_all_workers_is_kept_once() -> None:
    run = Scripted(workers=3)
    for rank in range(3):
        run.say(rank, hello(100 + rank, model=list(MODEL)))
    members = run.cluster.members
    assert all(worker.hello.model is members.model for worker in members.workers.values())

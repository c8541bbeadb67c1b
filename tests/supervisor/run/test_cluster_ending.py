"""The end of a run, message by message: drain, digests, verdict, upload, saved; and deaths at every point
of it."""

from __future__ import annotations

from random import Random

import numpy as np
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted, digest, hello

from taut.core.messages import (
    Complaint,
    Digest,
    Done,
    Donor,
    Drain,
    Expulsion,
    Failed,
    Finish,
    HandedOver,
    Heartbeat,
    LeaseRequest,
    NoLease,
    Ready,
    Refusal,
    Returned,
    Saved,
    Statistics,
    Upload,
    UploadSeen,
)
from taut.core.pacing import LEAST_NBYTES, Window
from taut.supervisor.run.actions import TakeModel


def ending(*ranks: int) -> Scripted:
    """A run in which these workers are done and were told to drain."""
    run = Scripted(workers=len(ranks))
    run.train(*ranks)
    run.done(*ranks)
    return run


def upload(run: Scripted, rank: int, data: bytes = b"abcdef") -> None:
    for offset in range(0, len(data), 4):
        run.say(rank, Upload(offset, len(data)), data[offset : offset + 4])


def test_from_the_last_done_to_the_outcome() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    run.done(0)
    assert run.heard(0, Drain) == []
    run.done(1)
    assert [len(run.heard(rank, Drain)) for rank in (0, 1)] == [1, 1]
    assert run.cluster.state == "draining"
    run.drained(1)
    assert run.heard(0, Finish) == []
    run.drained(0)
    assert run.heard(0, Finish) == run.heard(1, Finish) == [Finish(identical=True, writer=0)]
    assert run.cluster.state == "saving"
    upload(run, 0)
    assert run.saves == [b"abcdef"]
    run.take(run.cluster.saved("runs/x/model.safetensors", "", run.now))
    assert run.heard(0, Saved) == [Saved("runs/x/model.safetensors", "")]
    outcome = run.outcome
    assert (outcome.state, outcome.exit_code, outcome.identical, outcome.exact) == ("finished", 0, True, True)
    assert outcome.digest == "same"
    assert str(outcome.model) == "runs/x/model.safetensors"
    assert outcome.workers[1].statistics.samples == 10


def test_buffers_are_averaged_and_given_to_all() -> None:
    run = ending(0, 1)
    run.say(0, digest(samples=300), np.float32([0, 8]).tobytes())
    run.say(1, digest(samples=100), np.float32([4, 8]).tobytes())
    for rank in (0, 1):
        payloads = [one.payloads for one in run.sent[b"%d" % rank] if isinstance(one.message, Finish)]
        assert payloads == [(np.float32([1, 8]).tobytes(),)]


def test_buffers_of_another_size_are_left_out_and_recorded() -> None:
    run = ending(0, 1, 2)
    run.say(0, digest(), b"\0" * 8)
    run.say(1, digest(), b"\0" * 4)
    run.say(2, digest(), b"\0" * 8)
    assert "worker 1" in run.told("buffers")


def test_replicas_that_differ_are_reported_and_the_model_is_kept() -> None:
    run = ending(0, 1)
    run.drained(0, text="aaa")
    run.drained(1, text="bbb")
    upload(run, 0)
    run.take(run.cluster.saved("m", "", run.now))
    assert run.outcome.identical is False
    assert run.outcome.exit_code == 1
    assert run.outcome.model is not None
    assert "workers" not in run.outcome.error and "worker 0 and worker 1 differ" in run.outcome.error
    assert "no message was refused: a bug in taut" in run.outcome.error


def test_where_messages_were_refused_a_difference_is_no_bug() -> None:
    """It is said how many, and of whom, also of one that is gone by then."""
    run = Scripted(4)
    run.train(0, 1, 2, 3)
    run.say(0, Heartbeat(Statistics(), [], [Complaint(3, 40, 2, "not finite"), Complaint(2, 1)]))
    run.say(1, Heartbeat(Statistics(), [], [Complaint(3, 30)]))
    run.exit(3)
    for rank in (0, 1, 2):
        run.say(rank, Done())
    run.drained(0, 2, text="aaa")
    run.drained(1, text="bbb")
    upload(run, 0)
    run.take(run.cluster.saved("m", "", run.now))
    said = "the replicas of workers 0, 2 and worker 1 differ, though they must not; refused: "
    assert run.outcome.error == said + "72 messages of worker 3, 1 messages of worker 2"


def test_without_an_exact_codec_a_difference_is_no_error() -> None:
    run = ending(0, 1)
    for rank in (0, 1):
        run.say(rank, digest(str(rank), exact=False), b"")
    assert run.heard(0, Finish) == [Finish(identical=False, writer=0)]
    upload(run, 0)
    run.take(run.cluster.saved("m", "", run.now))
    assert (run.outcome.identical, run.outcome.exact, run.outcome.exit_code) == (False, False, 0)


def test_a_death_during_the_drain_does_not_hang_it() -> None:
    run = ending(0, 1, 2)
    run.drained(0, 2)
    run.exit(1)
    assert run.heard(0, Finish) == run.heard(2, Finish) == [Finish(identical=True, writer=0)]
    assert [one.rank for one in run.roster(2).gone] == [1]


def test_silence_during_the_drain_does_not_hang_it() -> None:
    run = ending(0, 1)
    run.drained(0)
    run.pass_time(60, 0)
    assert run.heard(0, Finish) == [Finish(identical=True, writer=0)]


def test_a_worker_that_died_after_its_digest_has_no_say() -> None:
    run = ending(0, 1, 2)
    run.drained(0, text="odd")
    run.exit(0)
    run.drained(1, 2)
    assert run.heard(1, Finish) == [Finish(identical=True, writer=1)]


def test_when_the_writer_dies_another_is_asked() -> None:
    run = ending(0, 1)
    run.drained(0, 1)
    run.say(0, Upload(0, 6), b"abc")
    run.exit(0)
    assert run.heard(1, Finish)[-1] == Finish(identical=True, writer=1)
    upload(run, 1, b"uvwxyz")
    run.take(run.cluster.saved("m", "", run.now))
    assert run.saves == [b"uvwxyz"]
    assert run.outcome.exit_code == 0
    assert run.outcome.failures == ("worker 0: killed by SIGKILL",)


def test_when_the_writer_dies_and_the_others_are_gone_there_is_no_model() -> None:
    run = ending(0, 1, 2)
    run.drained(0, 1, 2)
    run.exit(1, "finished", clean=True)
    run.exit(0)
    assert run.heard(2, Finish)[-1].writer == 2, "it may still be there"
    run.take(run.cluster.unreachable(b"2", run.now))
    assert run.outcome.state == "failed"
    assert run.outcome.model is None
    assert run.outcome.identical is True
    assert "no worker was left to write the model" in run.outcome.error


def test_a_second_writer_that_never_answers_is_given_up() -> None:
    run = ending(0, 1)
    run.pass_time(40, 0, 1)
    run.drained(0, 1)
    run.exit(0)
    run.pass_time(20)
    assert run.outcome.state == "failed"


def test_workers_that_go_after_the_verdict_are_not_dead() -> None:
    run = ending(0, 1)
    run.drained(0, 1)
    run.exit(1, "finished", clean=True)
    run.pass_time(60, 0)
    upload(run, 0)
    run.take(run.cluster.saved("m", "", run.now))
    assert run.outcome.failures == ()
    assert run.outcome.exit_code == 0
    assert run.outcome.workers[1].state == "finished"


def test_a_script_that_fails_after_training_counts() -> None:
    run = ending(0, 1)
    run.drained(0, 1)
    run.exit(1, "exit code 1")
    upload(run, 0)
    run.take(run.cluster.saved("m", "", run.now))
    assert run.outcome.exit_code == 1
    assert "after the end of training" in run.outcome.failures[0]


def test_a_broken_upload_is_given_up() -> None:
    run = ending(0)
    run.drained(0)
    run.say(0, Upload(0, 6), b"ab")
    run.say(0, Upload(2, 5), b"cde")
    assert "expected 2 of 6" in run.heard(0, Saved)[0].error
    assert run.outcome.state == "failed"


def test_an_upload_that_a_broken_connection_cut_off_goes_on_where_it_was() -> None:
    run = ending(0)
    run.drained(0)
    run.say(0, Upload(0, 6), b"abc")
    run.say(0, Upload(4, 6), b"ef")  # the part before it was lost with the connection
    assert run.heard(0, Saved) == []
    run.say(0, Returned(0, "done", 0, [], []))  # the next heartbeat showed it
    assert run.heard(0, Finish)[-1] == Finish(identical=True, writer=0, have=3)
    run.say(0, Upload(4, 6), b"ef")  # it was under way still
    run.say(0, Upload(3, 6), b"def")
    assert run.saves == [b"abcdef"]


def test_an_upload_that_began_again_while_parts_were_under_way_goes_on() -> None:
    """Parts of another size overlap what came late; all of them were passed over, and the run never ended."""
    run = ending(0)
    run.drained(0)
    run.say(0, Upload(0, 6), b"ab")
    run.say(0, Returned(0, "done", 0, [], []))
    run.say(0, Upload(2, 6), b"c")  # was under way
    assert run.heard(0, Finish)[-1].have == 2
    run.say(0, Upload(2, 6), b"cd")
    assert run.heard(0, UploadSeen)[-1] == UploadSeen(4)
    run.say(0, Upload(3, 6), b"d")
    assert run.heard(0, UploadSeen)[-1] == UploadSeen(4)
    run.say(0, Upload(4, 6), b"ef")
    assert run.saves == [b"abcdef"]


@given(st.integers(1, 60_000), st.integers(0, 2**32))
@settings(max_examples=some(100), deadline=None)
def test_an_upload_ends_whatever_was_lost_and_whenever_it_is_reminded(size: int, seed: int) -> None:
    """``to``, ``back``: what is under way. A break loses all of it, and the worker's next heartbeat shows that."""
    random, run = Random(seed), ending(0)
    data = random.randbytes(size)
    run.drained(0)
    to: list[tuple[Upload | Returned, bytes]] = []
    back: list[Finish | UploadSeen] = []
    window, now = Window(1 << 20, nbytes=LEAST_NBYTES), 0.0

    def move(how: str) -> None:
        nonlocal window, now
        now += float(how == "wait")  # the window becomes smaller then
        if how == "send" and window.room and window.offset < size:
            part = data[window.offset : window.offset + window.part_nbytes]
            to.append((Upload(window.offset, size), part))
            window.sent(len(part), now)
        elif how == "come" and to:
            told = len(run.heard(0, Finish)), len(run.heard(0, UploadSeen))
            run.say(0, *to.pop(0))
            back.extend([*run.heard(0, Finish)[told[0] :], *run.heard(0, UploadSeen)[told[1] :]])
        elif how == "answer" and back:
            answer = back.pop(0)
            window.seen(answer.nbytes, now) if isinstance(answer, UploadSeen) else None
            window = window.resumed(answer.have) if isinstance(answer, Finish) else window
        elif how == "break":
            to.clear()
            back.clear()
        if how in ("break", "remind"):
            to.append((Returned(0, "done", 0, [], []), b""))

    moves = {"send": 8, "come": 4, "answer": 4, "wait": 0.3, "remind": 1, "break": 0.1}
    for how in random.choices([*moves], [*moves.values()], k=random.randint(0, 200)):
        move(how)
    for _ in range(4 * (len(to) + len(back) + size // LEAST_NBYTES + 100)):
        for how in ("send", "come", "answer"):
            move(how)
    assert run.saves[:1] == [data]


def test_an_upload_that_the_model_cannot_fill_is_refused() -> None:
    run = ending(0)
    run.drained(0)
    run.say(0, Upload(0, 2**40), b"ab")
    assert "by the model's tensors" in run.heard(0, Saved)[0].error


def test_only_the_writer_uploads() -> None:
    run = ending(0, 1)
    run.drained(0, 1)
    run.say(1, Upload(0, 2), b"ab")
    assert run.saves == []
    assert run.cluster.ledger.oddities == 1


def test_a_model_may_come_as_a_file() -> None:
    run = ending(0, 1)
    run.drained(0, 1)
    run.say(1, HandedOver(6, 99))  # it is not the writer
    assert run.cluster.ledger.oddities == 1
    assert TakeModel(0, 6, 99) in run.say(0, HandedOver(6, 99, 0.5))
    run.exit(0, clean=True)
    run.take(run.cluster.saved("m", "", run.now))
    assert run.outcome.exit_code == 0


def test_a_file_that_the_model_cannot_fill_is_refused_and_another_worker_asked() -> None:
    run = ending(0, 1)
    run.drained(0, 1)
    run.say(0, HandedOver(2**40, 99))
    assert "expected up to" in run.heard(0, Saved)[0].error
    assert run.heard(1, Finish)[-1].writer == 1


def test_a_disk_that_is_full_is_told_to_the_writer_and_in_the_outcome() -> None:
    run = ending(0)
    run.drained(0)
    upload(run, 0)
    run.take(run.cluster.saved("", "no space left on device", run.now))
    assert run.heard(0, Saved) == [Saved("", "no space left on device")]
    assert (run.outcome.state, run.outcome.exit_code, run.outcome.model) == ("failed", 1, None)
    assert "no space left" in run.outcome.error


def test_the_user_drains_in_mid_run_and_what_is_left_is_counted() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    run.say(0, LeaseRequest(0, 100, 10, False))
    run.take(run.cluster.drain("interrupted by the user", run.now))
    assert run.heard(0, Drain) == run.heard(1, Drain) == [Drain("interrupted by the user")]
    run.say(1, LeaseRequest(0, 100, 10, False))
    assert run.heard(1, NoLease) == [NoLease(0)]
    run.drained(0, 1)
    upload(run, 0)
    run.take(run.cluster.saved("m", "", run.now))
    assert run.outcome.exit_code == 0
    assert run.outcome.samples_undone == 100


def test_a_held_request_is_answered_when_the_run_is_drained() -> None:
    run = Scripted(workers=2)
    run.train(0, 1)
    run.say(0, LeaseRequest(0, 5, 5, True))
    run.say(1, LeaseRequest(0, 5, 5, True))
    assert run.heard(1, NoLease) == []
    run.take(run.cluster.drain("enough", run.now))
    assert run.heard(1, NoLease) == [NoLease(0)]


def test_a_worker_that_is_joining_drains_when_it_is_ready() -> None:
    run = Scripted(workers=1)
    run.train(0)
    run.join(1)
    run.take(run.cluster.drain("enough", run.now))
    assert run.heard(1, Drain) == []
    run.drained(0)
    assert run.heard(0, Finish) == [], "the joiner's digest is awaited"
    run.say(1, Ready())
    assert run.heard(1, Drain) == [Drain("enough")]
    run.drained(1)
    assert run.heard(1, Finish) == [Finish(identical=True, writer=0)]


def test_nobody_is_admitted_to_a_run_that_ends() -> None:
    run = ending(0)
    run.join(1)
    assert "ending" in run.heard(1, Refusal)[0].reason


def test_a_drain_before_anybody_came_ends_the_run() -> None:
    run = Scripted()
    run.take(run.cluster.drain("interrupted", run.now))
    assert run.outcome.state == "failed"
    assert run.outcome.error == "interrupted, before any worker was ready"


def test_a_drain_while_waiting_for_others_writes_what_there_is() -> None:
    run = Scripted(workers=3)
    run.train(0)
    run.take(run.cluster.drain("interrupted", run.now))
    run.drained(0)
    assert run.heard(0, Finish) == [Finish(identical=True, writer=0)]


def test_who_leaves_or_fails_during_the_drain_is_not_awaited() -> None:
    run = ending(0, 1, 2)
    run.say(1, Done(leaving=True))
    run.say(2, Failed("out of memory"))
    run.drained(0)
    assert run.heard(0, Finish) == [Finish(identical=True, writer=0)]


def test_when_all_leave_there_is_no_model() -> None:
    run = Scripted(workers=1)
    run.train(0)
    run.say(0, Done(leaving=True))
    assert run.outcome.state == "failed"
    assert "left before the end" in run.outcome.error


def test_stop_tells_everybody_and_happens_once() -> None:
    run = Scripted(workers=1)
    run.train(0)
    run.take(run.cluster.stop("stopped", run.now))
    assert run.heard(0, Expulsion) == [Expulsion("stopped")]
    run.take(run.cluster.stop("stopped", run.now))
    assert run.outcome.error == "stopped"


steps = st.lists(
    st.tuples(
        st.sampled_from(["hello", "ready", "ask", "done", "digest", "upload", "fail", "die", "leave"]),
        st.integers(0, 4),
    ),
    max_size=80,
)


@settings(max_examples=some(150))
@given(steps, st.integers(1, 4))
def test_kill_any_worker_at_any_message_and_the_run_still_ends(moves: list[tuple[str, int]], workers: int) -> None:
    run = Scripted(workers=workers)
    for move, rank in moves:
        match move:
            case "hello":
                run.say(rank, hello(100 + rank))
            case "ready" if run.heard(rank, Donor):
                run.say(rank, Ready())
            case "ask":
                run.say(rank, LeaseRequest(0, 50, 5, True))
            case "done":
                run.say(rank, Done())
            case "digest":
                run.say(rank, Digest("same", True, {}, Statistics()), b"")
            case "upload":
                run.say(rank, Upload(0, 4), b"abcd")
            case "fail":
                run.say(rank, Failed("raised"))
            case "die":
                run.exit(rank)
            case "leave":
                run.say(rank, Done(leaving=True))
        if run.saves and not run.outcomes:
            run.take(run.cluster.saved("m", "", run.now))
    # then nobody says another word, and the engine sees every process end
    run.pass_time(150)  # a detector without a rhythm of its own takes 19 s, and then the run has 120 s of patience
    for _ in range(workers):
        run.exit(99)
    assert len(run.outcomes) == 1
    assert run.outcome.exit_code in (0, 1)
    assert (run.outcome.model is not None) == bool(run.saves)


def test_the_outcome_is_final() -> None:
    run = ending(0)
    run.exit(0)
    assert run.outcome.state == "failed"
    run.drained(0)
    run.take(run.cluster.drain("again", run.now))
    run.exit(0)
    assert len(run.outcomes) == 1

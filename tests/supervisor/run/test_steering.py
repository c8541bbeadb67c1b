"""What the owner changes while the run goes: every worker is told, whenever it comes, and a supervisor that comes back
tells the same."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import Restarted, Scripted, hello

from taut.core.messages import CheckpointBegun, CheckpointDone, Done, Heartbeat, Statistics, Steering
from taut.errors import Misuse
from taut.supervisor.checkpoints.schedule import Parts

CHANGES = st.one_of(
    st.tuples(st.just("rate"), st.sampled_from([0.1, 0.5, 1.0, 2.0])),
    st.tuples(st.just("slack"), st.sampled_from([0.25, 0.015625, 2.0**-9])),
    st.tuples(st.just("pause"), st.integers(0, 2)),
    st.tuples(st.just("join"), st.just(0)),
    st.tuples(st.just("die"), st.just(0)),
)

COPIED = {0: CheckpointBegun(1, [], 0, 40)}


def going(kind: type[Scripted] = Scripted, **plan: object) -> Scripted:
    run = kind(3)
    run.cluster.plan = run.cluster.admission.plan = replace(run.cluster.plan, tethered=True, **plan)  # type: ignore[arg-type]
    run.train(0, 1, 2)
    return run


@given(st.lists(CHANGES, max_size=12))
def test_every_worker_was_told_last_what_is_set_now(changes: list[tuple[str, float]]) -> None:
    run = going(Restarted)
    rate, slack, paused, ranks = 1.0, 0.0, [False] * 3, 3
    for what, value in changes:
        if what == "rate":
            rate = value
            run.take(run.cluster.tune(value, None, "by hand", run.now))
        elif what == "slack":
            slack = value
            run.take(run.cluster.tune(None, value, "by hand", run.now))
        elif what == "pause":
            rank = int(value)
            paused[rank] = not paused[rank]
            run.take(run.cluster.pause(rank, "by hand", run.now, paused[rank]))
        elif what == "join":
            run.join(ranks)
            paused.append(False)
            ranks += 1
        else:
            run.come_back()  # type: ignore[attr-defined]
            run.cluster.plan = run.cluster.admission.plan = replace(run.cluster.plan, tethered=True)
            for rank, worker in run.cluster.members.workers.items():  # the old connections, by which they are known
                worker.connection = b"%d" % rank
                run.cluster.members.by_connection[worker.connection] = rank
                run.take([])
                run.cluster.handlers._remind(worker)
            run.take(run.cluster.outbox.take())
    for rank in range(ranks):
        told = run.heard(rank, Steering)
        if rate == 1.0 and slack == 0.0 and not told:
            assert not paused[rank]
            continue
        assert (told[-1].rate, told[-1].slack, told[-1].paused) == (rate, slack, paused[rank])
        assert [one.number for one in told] == sorted(one.number for one in told)


def test_each_change_is_an_event_that_says_who_asked() -> None:
    run = going()
    run.take(run.cluster.pause(1, "by ann", run.now))
    run.take(run.cluster.pause(1, "by bob", run.now, paused=False))
    run.take(run.cluster.tune(0.5, 0.25, "by cleo", run.now))
    assert run.told("paused") == "worker 1 is to make no step: by ann"
    assert run.told("resumed") == "worker 1 goes on: by bob"
    assert run.told("tuned").endswith("(1 before) and the slack is 0.25 (the codec chose before): by cleo")


def test_a_worker_that_was_evicted_while_it_paused_comes_back_paused() -> None:
    run = going()
    run.take(run.cluster.pause(2, "by ann", run.now))
    run.pass_time(60.0, 0, 1)
    assert not run.cluster.members.workers[2].live
    run.say(3, msgspec.structs.replace(hello(102), was=2))
    assert run.cluster.members.workers[3].paused and run.heard(3, Steering)[-1].paused


@pytest.mark.parametrize(
    ("rank", "plan", "expected"),
    [
        (7, {}, "a worker that is in the run: 0, 1, 2"),
        (0, {"cannot_pause": "of islands"}, "workers can wait one by one"),
    ],
)
def test_a_pause_that_cannot_be_is_refused(rank: int, plan: dict[str, object], expected: str) -> None:
    run = going(**plan)
    with pytest.raises(Misuse, match=expected):
        run.cluster.pause(rank, "", run.now)
    assert not run.heard(0, Steering)


def test_a_worker_is_paused_once_and_not_when_it_has_no_data_left() -> None:
    run = going()
    run.take(run.cluster.pause(0, "", run.now))
    with pytest.raises(Misuse, match="is paused"):
        run.cluster.pause(0, "", run.now)
    with pytest.raises(Misuse, match="is not paused"):
        run.cluster.pause(1, "", run.now, paused=False)
    run.say(1, Done())
    with pytest.raises(Misuse, match="no data left"):
        run.cluster.pause(1, "", run.now)
    run.take(run.cluster.drain("enough", run.now))
    with pytest.raises(Misuse, match="is ending"):
        run.cluster.tune(0.5, None, "", run.now)


@pytest.mark.parametrize("rate", [0.0, -1.0, 1e9, float("nan"), float("inf")])
def test_a_rate_out_of_bounds_is_refused(rate: float) -> None:
    with pytest.raises(Misuse):
        going().cluster.tune(rate, None, "", 0.0)


@pytest.mark.parametrize("slack", [0.0, 0.3, -0.5, 2.0**30, float("nan")])
def test_a_slack_that_is_no_power_of_two_is_refused(slack: float) -> None:
    with pytest.raises(Misuse):
        going().cluster.tune(None, slack, "", 0.0)


def test_a_run_without_tether_has_no_slack_and_some_have_no_rate() -> None:
    run = Scripted(2)
    run.train(0, 1)
    with pytest.raises(Misuse, match="the codec tether"):
        run.cluster.tune(None, 0.25, "", 0.0)
    with pytest.raises(Misuse, match="gloo"):
        going(cannot_scale="under gloo").cluster.tune(0.5, None, "", 0.0)
    with pytest.raises(Misuse, match="nothing"):
        run.cluster.tune(None, None, "", 0.0)


def test_who_hears_nothing_of_it_in_a_run_that_nobody_steers() -> None:
    run = going()
    run.say(0, Heartbeat(Statistics(), []))
    assert not run.heard(0, Steering)


@given(st.sampled_from([1.0, 0.5, 4.0]), st.sampled_from([0.0, 0.25]), st.sampled_from(["", "of islands"]), st.booleans())
def test_a_run_that_is_resumed_goes_on_with_what_its_owner_had_set(
    rate: float, slack: float, rigid: str, tethered: bool
) -> None:
    before, run = going(), Scripted(2)
    before.cluster.ledger.rate, before.cluster.ledger.slack = rate, slack
    before.cluster.plan = before.cluster.admission.plan
    made = before.cluster.checkpointing._manifest(Parts(1, set(), written={0: CheckpointDone(1, 1, "d")}, copied=COPIED))
    assert (made["rate"], made["slack"]) == (rate, slack)
    run.cluster.admission.plan = replace(run.cluster.plan, tethered=tethered, cannot_scale=rigid)
    told = run.cluster.owner.resume(made["rate"], made["slack"])
    run.train(0, 1)
    expected = (1.0 if rigid else rate, slack if tethered else 0.0)
    for rank in range(2):
        heard = run.heard(rank, Steering)
        assert bool(heard) == bool(told) == (expected != (1.0, 0.0))
        assert all((one.rate, one.slack, one.paused) == (*expected, False) for one in heard)

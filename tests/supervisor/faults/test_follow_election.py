"""Workers went on without the supervisor, or may do so: what it makes of that, in pretended time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted import Scripted

from taut.core.messages import Expulsion, Heartbeat, Ready, Roster, Statistics, View
from taut.supervisor.faults.follow_election import LEFT_OUT
from taut.supervisor.run.cluster import Cluster
from taut.supervisor.storage.snapshot import keep, recall

DETECTION_S = 8.0


def lockstep(workers: int) -> Scripted:
    """A run of `sync` whose workers have beaten for a while, and have all entered the present membership."""
    run = Scripted(workers=workers)
    plan = replace(run.cluster.plan, strategy="sync", majority=True, patience_s=60.0)
    run.cluster = Cluster(plan, run.now)
    run.train(*range(workers))
    run.pass_time(20, *range(workers))
    for rank in range(workers):
        beat(run, rank, agreed=stamp(run))
    return run


def stamp(run: Scripted) -> int:
    return run.cluster.members.roster().stamp


def beat(
    run: Scripted, rank: int, agreed: int = 0, elected: tuple[int, int, list[int]] | None = None, calm: bool = True
) -> None:
    view = None if elected is None else View(*elected, own=True)
    run.say(rank, Heartbeat(Statistics(steps=1), [], [], 0, agreed, view, calm))


def live(run: Scripted) -> list[int]:
    return [worker.rank for worker in run.cluster.members.live()]


def test_it_follows_those_who_went_on_and_takes_the_others_back() -> None:
    run = lockstep(4)
    run.pass_time(30, 3)
    assert live(run) == [0, 1, 2, 3], "one worker and the supervisor are no majority"
    beat(run, 1, elected=(2, 5, [0, 1, 2]))
    assert live(run) == [0, 1, 2, 3], "that is one's word"
    beat(run, 0, elected=(2, 5, [0, 1, 2]))
    assert live(run) == [0, 1, 2] and "workers 0, 1, 2 went on together" in run.told("elected")
    assert run.heard(3, Expulsion)[-1] == Expulsion(LEFT_OUT, welcome=True)
    told = run.heard(1, Roster)[-1]
    assert told.view == 2 and told.stamp > View(2, 5, [0, 1, 2]).stamp
    again = len(run.heard(1, Roster))
    beat(run, 2, elected=(2, 5, [0, 1, 2]))
    assert len(run.heard(1, Roster)) == again, "it was heard of before"


@pytest.mark.parametrize(
    "view",
    [
        (1, 5, [0, 1, 9]),
        (1, 5, [1, 2]),
        (1, 5, [0]),
        (1, 5, [0, 0]),
        (1, 5, [0, 1, 1]),
        (2**20, 5, [0, 1, 2]),
        (1, 99, [0, 1]),
    ],
)
def test_an_election_that_cannot_have_been_is_refused(view: tuple[int, int, list[int]]) -> None:
    run = lockstep(4)
    beat(run, 0, elected=view)
    assert live(run) == [0, 1, 2, 3] and run.cluster.members.view == 0
    assert run.cluster.members.workers[0].refused == 1


def test_those_who_fall_silent_one_after_the_other_are_counted_together() -> None:
    run = lockstep(5)
    run.pass_time(1.5, 1, 2, 3, 4)
    run.pass_time(1.5, 2, 3, 4)
    run.pass_time(20, 3, 4)
    assert live(run) == [2, 3, 4], "workers 0, 1 and 2 may be going on: they are most of the five"
    assert "sync goes on only with a majority" in run.told("waiting")


def test_newcomers_do_not_outvote_those_who_have_not_met_them() -> None:
    run = lockstep(4)
    run.join(4, 5, 6)
    for rank in (4, 5, 6):
        run.say(rank, Ready())
    run.pass_time(20, 3, 4, 5, 6)
    assert live(run) == list(range(7)), "workers 0, 1 and 2 may be going on"
    agreed = lockstep(4)
    agreed.join(4, 5, 6)
    for rank in (4, 5, 6):
        agreed.say(rank, Ready())
    beat(agreed, 0, agreed=stamp(agreed))
    agreed.pass_time(20, 3, 4, 5, 6)
    assert live(agreed) == [3, 4, 5, 6]


@pytest.mark.parametrize("calm", [True, False])
def test_who_ended_counts_unless_it_was_in_touch(calm: bool) -> None:
    run = lockstep(3)
    run.pass_time(3)
    for rank in (0, 1, 2):
        beat(run, rank, calm=calm)
    run.exit(0)
    run.exit(1)
    assert live(run) == [2]
    last = run.heard(2, Roster)[-1]
    assert (last.version > 0) is calm, "two that ended may have gone on together before: nobody enters the new roster"
    run.pass_time(3, 2)
    assert bool(run.told("waiting")) is not calm
    if not calm:
        beat(run, 2, agreed=run.cluster.admission.memberships.told[-1].last)
        run.pass_time(1, 2)
        assert run.heard(2, Roster)[-1].version > 0


def test_what_may_be_in_force_is_kept() -> None:
    run = lockstep(4)
    for rank in (1, 2):
        beat(run, rank, elected=(2, 5, [0, 1, 2]))
    back = recall(run.cluster.plan, keep(run.cluster, run.now), 1, run.now)
    assert back.members.view == 2 and back.members.roster().stamp > stamp(run)
    assert back.admission.memberships.told == run.cluster.admission.memberships.told


def test_who_ends_before_its_first_heartbeat_has_not_gone_on_with_others() -> None:
    run = Scripted(workers=4)
    run.cluster = Cluster(replace(run.cluster.plan, strategy="sync", majority=True), run.now)
    run.train(*range(4))
    for rank in range(3):
        run.exit(rank)
    assert run.heard(3, Roster)[-1].version > 0, "the last one goes on"

"""Who is given up for its silence, who is waited for, and who may come back: the supervisor's side, in pretended time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted, hello

from taut.core.messages import Complaint, Expulsion, Heartbeat, Ready, Refusal, Statistics, Welcome
from taut.supervisor.control import Control, RevokeToken
from taut.supervisor.run.admission import MOST_FRUITLESS
from taut.supervisor.run.cluster import Cluster
from taut.supervisor.storage.snapshot import keep, recall
from taut.transport.access import AccessControl
from taut.transport.framing import encode
from taut.transport.keys import RunKeys

DETECTION_S = 8.0  # after a while of regular beats


def training(workers: int, **plan: object) -> Scripted:
    """A run whose workers have beaten long enough to be judged by their rhythm."""
    run = Scripted(workers=workers)
    run.cluster = Cluster(replace(run.cluster.plan, **plan), run.now)
    run.train(*range(workers))
    run.pass_time(20, *range(workers))
    return run


def sync(workers: int) -> Scripted:
    return training(workers, strategy="sync", majority=True, admits_late=False, patience_s=60.0)


def live(run: Scripted) -> list[int]:
    return [worker.rank for worker in run.cluster.members.live()]


def returning(run: Scripted, rank: int, was: int, pid: int | None = None) -> None:
    """The process of worker ``was`` (or ``pid``) asks for another rank over the connection of ``rank``."""
    run.say(rank, msgspec.structs.replace(hello(pid or 100 + was), was=was))


# ------------------------------------------------------------------------------------------------------ a majority


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 6), st.data())
def test_lockstep_goes_on_only_with_a_majority_of_the_parties(workers: int, data) -> None:
    silent = data.draw(st.sets(st.integers(0, workers - 1), min_size=1))
    run = sync(workers)
    heard = [rank for rank in range(workers) if rank not in silent]
    run.pass_time(DETECTION_S, *heard)
    majority = 2 * (len(heard) + 1) > workers + 1
    assert live(run) == (heard if majority else list(range(workers)))
    assert bool(run.told("waiting")) is not majority
    if not majority:
        run.pass_time(5, *range(workers))
        assert live(run) == list(range(workers)), "who was waited for has lost nothing"
        assert not run.outcomes


def test_a_moment_behind_the_others_is_not_too_late() -> None:
    run = sync(4)
    run.pass_time(DETECTION_S, 0)
    assert "3 of 4 workers are silent: sync goes on only with a majority; waiting" in run.told("waiting")
    run.pass_time(2, 0, 1, 2)
    assert live(run) == [0, 1, 2, 3]
    run.pass_time(DETECTION_S, 0, 1, 2)
    assert live(run) == [0, 1, 2], "three of four, and the supervisor, are a majority"


def test_the_patience_with_a_lost_majority_ends() -> None:
    run = sync(3)
    run.pass_time(DETECTION_S + 50, 0)
    assert not run.outcomes
    run.pass_time(20, 0)
    assert run.outcome.exit_code == 1
    assert "2 of 3 workers are silent: sync goes on only with a majority" in run.outcome.error


def test_a_process_that_was_seen_to_end_is_no_party() -> None:
    run = sync(4)
    run.exit(1)
    run.exit(2)
    run.exit(3)
    run.pass_time(DETECTION_S, 0)
    assert live(run) == [0]
    assert not run.told("waiting")


def test_the_last_ones_who_have_the_model_are_waited_for() -> None:
    run = training(2, patience_s=60.0)
    run.pass_time(30)
    assert live(run) == [0, 1] and "no worker that has the model can be reached" in run.told("waiting")
    run.pass_time(5, 0, 1)
    assert live(run) == [0, 1] and not run.outcomes


# -------------------------------------------------------------------------------------------------------- coming back


def test_who_was_silent_is_welcome_back_and_is_no_failure() -> None:
    run = training(3)
    run.pass_time(DETECTION_S, 0, 1)
    assert run.heard(2, Expulsion)[-1].welcome
    assert run.cluster.ledger.failures
    assert run.cluster.members.has_key("k" * 40), "should its token have expired, its key lets it in"
    returning(run, 7, was=2)
    assert run.heard(7, Welcome)[-1].rank == 3
    assert "worker 3 is back (it was worker 2: silent for" in run.told("back")
    assert not run.cluster.ledger.failures
    found = run.cluster.members.find_pid(102, "host")
    assert found is not None and found.rank == 3, "the engine's news of the process are about the live one"


@pytest.mark.parametrize("why", ["dismissed", "rubbish", "no late joins", "the run is ending"])
def test_who_did_something_else_is_not(why: str) -> None:
    run = training(4, admits_late=why != "no late joins")
    if why == "dismissed":
        run.take(run.cluster.dismiss(3, "expelled by the user", run.now, expel=True))
    elif why == "rubbish":
        for accuser in (0, 1, 2):
            run.say(accuser, Heartbeat(Statistics(), [], [Complaint(3, 10_000, why="nonsense")]))
        run.pass_time(DETECTION_S, 0, 1, 2)
        assert "nonsense" in run.cluster.members.workers[3].reason
    elif why == "the run is ending":
        run.take(run.cluster.drain("enough", run.now))
    run.pass_time(DETECTION_S, 0, 1, 2)
    run.beat(3)
    assert 3 not in live(run)
    assert run.heard(3, Expulsion) and not run.heard(3, Expulsion)[-1].welcome


def test_another_process_cannot_take_the_place_of_one_that_was_given_up() -> None:
    run = training(2)
    run.pass_time(DETECTION_S, 0)
    returning(run, 7, was=1, pid=999)
    assert run.heard(7, Welcome)[-1].rank == 2, "it is admitted as any newcomer"
    assert not run.told("back")
    assert run.cluster.ledger.failures


def test_nobody_loses_its_place_to_one_who_claims_it() -> None:
    run = training(2)
    returning(run, 7, was=1)
    assert live(run) == [0, 1, 2]
    assert not run.told("back")


def test_one_that_comes_back_again_and_again_without_a_step_is_turned_away() -> None:
    run = training(2)
    was = 1
    run.cluster.members.workers[1].statistics = Statistics()
    for turn in range(1, MOST_FRUITLESS + 2):
        run.pass_time(25, 0)
        assert was not in live(run)
        if turn > MOST_FRUITLESS:
            break
        connection = 10 + turn
        returning(run, connection, was, pid=101)
        was = run.heard(connection, Welcome)[-1].rank
        run.say(connection, Ready())
    assert not run.heard(10 + MOST_FRUITLESS, Expulsion)[-1].welcome
    assert "came back 3 times and made no step" in run.heard(10 + MOST_FRUITLESS, Expulsion)[-1].reason


def test_a_supervisor_that_forgot_that_it_gave_one_up_still_takes_it_back() -> None:
    run = training(2)
    kept = keep(run.cluster, run.now)
    run.pass_time(DETECTION_S, 0)
    run.cluster = recall(run.cluster.plan, kept, 1, run.now)
    returning(run, 7, was=1)
    assert 1 not in live(run)
    assert not run.heard(7, Refusal)
    run.pass_time(0.1)
    kept = keep(run.cluster, run.now)
    assert recall(run.cluster.plan, kept, 2, run.now).members.workers[1].may_return


def test_a_revoked_token_bars_the_way_back_where_its_workers_are_to_go(tmp_path: Path) -> None:
    """Not where they may stay. A worker that came back belongs to the token that it first came with."""
    for expel in (False, True):
        run = training(4)
        run.pass_time(DETECTION_S, 0, 1)
        returning(run, 7, was=3)
        door = AccessControl(RunKeys.generate().issue("guests", None))
        guests = {b"2": "guests", b"3": "guests"}
        control = Control(run.cluster, door, tmp_path / "keys", guests.get)
        _, actions = control.obey(encode(RevokeToken("guests", expel), ()), run.now)
        run.take(actions)
        run.beat(2)
        assert run.heard(2, Expulsion)[-1].welcome is not expel
        assert live(run) == ([0, 1] if expel else [0, 1, 4])

"""A worker says that most of them went on without others, and it is not true, or nobody knows: in pretended time."""

from __future__ import annotations

import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted
from test_follow_election import beat, live, lockstep, stamp

from taut.core.messages import Roster, View
from taut.supervisor.faults.follow_election import LEFT_OUT

Claim = tuple[int, int, list[int]]


def tell(run: Scripted, seconds: float, calm: list[int], claims: dict[int, Claim], agreed: bool = False) -> None:
    """So many seconds, in which some beat calmly and others tell of elections. ``agreed``: all have entered what they
    were told last, which all but the claimers do at once."""
    for _ in range(round(2 * seconds)):
        run.pass_time(0.5)
        for rank in calm:
            beat(run, rank, agreed=stamp(run) if agreed else 0)
        for rank, claim in claims.items():
            beat(run, rank, elected=claim, calm=False)


@st.composite
def _claims(draw: st.DrawFn, workers: int) -> list[Claim]:
    """Any views at all that worker 0 is in."""
    ranks = st.lists(st.integers(1, workers), unique=True, max_size=workers)
    view = st.builds(
        lambda number, version, others: (number, version, [0, *others]), st.integers(0, 9), st.integers(0, 30), ranks
    )
    return draw(st.lists(view, min_size=1, max_size=12))


@given(data=st.data(), workers=st.integers(2, 6), patient=st.booleans())
@settings(max_examples=some(60), deadline=None)
def test_no_claim_of_one_worker_has_anybody_given_up_who_is_heard(
    data: st.DataObject, workers: int, patient: bool
) -> None:
    """Whatever it tells, in any order, for a moment or for long: all others stay, and the run does not wait."""
    run, others = lockstep(workers), list(range(1, workers))
    for claim in data.draw(_claims(workers)):
        tell(run, 3.0 if patient else 0.5, others, {0: claim}, agreed=True)
    tell(run, 3.0, others, {}, agreed=True)
    assert set(live(run)) >= set(others)
    assert not run.told("waiting")
    assert run.heard(1, Roster)[-1].version > 0, "and by the last roster they go on"


@given(data=st.data(), workers=st.integers(3, 6), hostile=st.integers(1, 3))
@settings(max_examples=some(60), deadline=None)
def test_liars_who_are_no_majority_of_the_named_have_nobody_given_up(
    data: st.DataObject, workers: int, hostile: int
) -> None:
    """The same story told by several; the honest majority of those it names is heard."""
    liars = list(range(min(hostile, (workers - 1) // 2)))
    honest = list(range(len(liars), workers))
    named = data.draw(st.lists(st.sampled_from(honest), unique=True, min_size=len(liars)))
    run = lockstep(workers)
    claim = (data.draw(st.integers(1, 9)), data.draw(st.integers(0, 30)), sorted([*liars, *named]))
    tell(run, 6.0, honest, dict.fromkeys(liars, claim))
    assert set(live(run)) >= set(honest)
    assert all(run.cluster.members.workers[rank].refused for rank in liars)


def test_few_who_name_only_themselves_are_not_most_of_anything() -> None:
    run = lockstep(7)
    tell(run, 6.0, [2, 3, 4, 5, 6], {0: (1, 5, [0, 1]), 1: (1, 5, [0, 1])})
    assert live(run) == list(range(7))


def test_who_makes_elections_up_again_and_again_is_expelled() -> None:
    run = lockstep(4)
    for number in range(1, 5):
        assert live(run) == [0, 1, 2, 3], "one contradiction may happen to an honest worker"
        tell(run, 3.0, [1, 2, 3], {0: (number, 5, [0, 1, 2])})
    assert live(run) == [1, 2, 3]
    assert "do not know of" in run.told("refused") and not run.cluster.members.workers[0].may_return


def test_an_election_whose_voters_entered_a_roster_first_is_outbid_and_nobody_is_stuck() -> None:
    """Worker 0 counted their votes; the supervisor was back before they heard of it."""
    run = lockstep(4)
    claim = (3, 5, [0, 1, 2])
    tell(run, 3.0, [1, 2, 3], {0: claim})
    last = run.heard(0, Roster)[-1]
    assert live(run) == [0, 1, 2, 3] and last.stamp > View(*claim).stamp, "so that it enters the roster"


def test_a_vote_that_is_still_out_is_made_void() -> None:
    """Workers 1 and 2 voted, and never heard what came of it: a roster of another version tells them to forget it."""
    run = lockstep(4)
    before = run.heard(1, Roster)[-1]
    for _ in range(5):
        tell(run, 0.5, [3], {0: (3, 5, [0, 1, 2])})
        for rank in (1, 2):
            beat(run, rank, calm=False)
    asked = run.heard(1, Roster)[-1]
    assert asked.version > before.version and asked.view == 0 and live(run) == [0, 1, 2, 3]
    tell(run, 1.0, [1, 2, 3], {0: (3, 5, [0, 1, 2])})
    assert run.heard(0, Roster)[-1].view == 3 and live(run) == [0, 1, 2, 3]


def test_the_last_one_of_two_is_believed_when_the_other_is_silent() -> None:
    run = lockstep(3)
    run.pass_time(20, 0)
    view = View(1, 5, [0, 1])
    for _ in range(12):
        run.pass_time(0.5)
        beat(run, 0, agreed=view.stamp, elected=(1, 5, [0, 1]))
    assert run.cluster.members.workers[2].reason == LEFT_OUT
    assert run.heard(0, Roster)[-1].view == 1
    run.pass_time(10, 0)
    assert live(run) == [0] and run.heard(0, Roster)[-1].version > 0, "it goes on"


def test_of_an_election_of_which_too_few_are_heard_nobody_is_given_up_and_the_run_waits() -> None:
    """Two of the three are gone for the supervisor, and may be going on: the calm ones can neither go on nor be lost."""
    run = lockstep(5)
    run.pass_time(20, 0, 3, 4)
    assert live(run) == [0, 3, 4]
    tell(run, 4.0, [3, 4], {0: (1, 5, [0, 1, 2])})
    assert live(run) == [0, 3, 4] and "too few of them are heard" in run.told("elected")
    assert "sync goes on only with a majority" in run.told("waiting")


def test_an_election_that_some_entered_and_one_did_not_is_void_and_nobody_is_to_blame() -> None:
    """Two of six tell of it, three are gone, and one who is heard knows nothing of it: so no round was made in it.
    The two, who counted votes that were withdrawn, go on with the others under a later roster."""
    run = lockstep(7)
    run.pass_time(20, 0, 1, 2, 6)
    assert live(run) == [0, 1, 2, 6]
    claim = (1, 5, [0, 1, 2, 3, 4, 5])
    tell(run, 4.0, [2, 6], {0: claim, 1: claim})
    assert live(run) == [0, 1, 2, 6] and "did not go on together, as 0, 1 said" in run.told("elected")
    assert not any(run.cluster.members.workers[rank].refused for rank in (0, 1))
    last = run.heard(0, Roster)[-1]
    assert last.stamp > View(*claim).stamp and last.version > 0, "so that they enter the roster"


def test_those_who_elected_a_membership_and_all_entered_it_are_counted_by_it() -> None:
    """Three of five went on, and one of them is lost since: two of three and the supervisor are enough."""
    run = lockstep(5)
    run.pass_time(30, 3)
    elected = (1, 5, [0, 1, 2])
    tell(run, 20.0, [], {0: elected, 1: elected})
    assert live(run) == [0, 1, 2], "two of five are not enough, and nobody has said that all three were in it"
    for rank in (0, 1):
        beat(run, rank, agreed=View(*elected).stamp, elected=elected)
    run.pass_time(30, 0, 1)
    assert live(run) == [0, 1] and run.heard(0, Roster)[-1].version > 0


def test_what_is_refused_counts_until_a_later_membership_is_agreed_on() -> None:
    """Who contradicted it and fell silent then might be lying, and going on: it is safe to count too much."""
    run = lockstep(5)
    tell(run, 3.0, [1, 2, 3, 4], {0: (1, 5, [0, 1, 2])})
    assert run.heard(3, Roster)[-1].view == 1
    run.pass_time(20, 0, 3, 4)
    assert live(run) == [0, 1, 2, 3, 4]
    beat(run, 3, agreed=stamp(run))
    run.pass_time(10, 0, 3, 4)
    assert live(run) == [0, 3, 4]


@pytest.mark.parametrize("number", [2, 4, 7])
@pytest.mark.parametrize("members", [[0, 1, 2, 3], [0, 1, 5], [0, 2, 3, 4], [0, 2, 3, 4, 5]])
def test_what_was_made_up_hides_no_election_that_was_held(number: int, members: list[int]) -> None:
    """Workers 1 to 4 of seven went on; one of them is heard at first. Worker 0 has its own story, of an earlier, the same
    or a later number."""
    run = lockstep(7)
    run.pass_time(30, 0, 5, 6)
    made_up, held = (number, 5, members), (4, 5, [1, 2, 3, 4])
    tell(run, 10.0, [5, 6], {0: made_up, 1: held})
    assert live(run) == list(range(7)), "the one who is heard of the four is not enough of them"
    tell(run, 3.0, [5, 6], {0: made_up, 1: held, 2: held, 3: held, 4: held})
    beat(run, 1, agreed=View(*held).stamp, elected=held)
    run.pass_time(0.5)
    assert live(run) == [1, 2, 3, 4] and run.heard(1, Roster)[-1].view == 4

"""A run in phases, as its supervisor sees it: who joins begins in the present one, and nobody waits for the unready."""

from __future__ import annotations

from scripted import Restarted, Scripted

from taut.core.messages import Done, NextPhase, PhaseDone, Ready, Returned, Roster, Start, Welcome


def first_phases(roster: Roster) -> dict[int, int]:
    return {member.rank: member.first_phase for member in roster.members}


def test_a_newcomer_is_told_the_phase_and_counts_in_it() -> None:
    run = Scripted(2)
    run.train(0, 1)
    for rank in (0, 1):
        run.say(rank, PhaseDone(1))
    run.join(2)
    assert run.heard(2, Welcome)[0].phase == 1
    assert first_phases(run.roster(0)) == {0: 0, 1: 0, 2: 1}
    run.say(2, Ready(1))
    assert run.heard(2, Start)
    for rank in (0, 1):
        run.say(rank, PhaseDone(2))
    assert [told.phase for told in run.heard(0, NextPhase)] == [1], "the newcomer is in phase 1, and not through with it"
    run.say(2, PhaseDone(2))
    assert [told.phase for told in run.heard(2, NextPhase)] == [2]


def test_who_is_only_joining_holds_nobody_up_and_begins_in_the_next_phase() -> None:
    run = Scripted(2)
    run.train(0, 1)
    run.join(2)
    assert run.heard(2, Welcome)[0].phase == 0
    for rank in (0, 1):
        run.say(rank, PhaseDone(1))
    (told,) = run.heard(0, NextPhase)
    assert told.phase == 1 and told.version == run.roster(0).version == run.roster(2).version
    assert first_phases(run.roster(2))[2] == 1 and not run.heard(2, NextPhase)
    run.say(2, Ready(0))  # it had the state of the phase that is over
    assert not run.heard(2, Start) and not run.roster(0).members[2].ready
    run.say(2, Ready(1))
    assert run.heard(2, Start) and run.roster(0).members[2].ready


def test_what_was_lost_on_the_way_is_made_up_for() -> None:
    run = Scripted(2)
    run.train(0, 1)
    run.join(2)
    run.say(0, PhaseDone(1))
    run.say(1, Returned(1, "ready", 0, [], [], reached=1))  # its PhaseDone had not come
    assert [told.phase for told in run.heard(1, NextPhase)] == [1]
    run.say(2, Returned(2, "ready", 0, [], []))  # it does not know yet
    assert not run.heard(2, Start) and run.heard(2, Roster)[-1] == run.roster(0)
    run.say(2, Returned(2, "ready", 1, [], []))
    assert run.heard(2, Start)


def test_a_supervisor_that_comes_back_knows_who_began_where() -> None:
    run = Restarted(2)
    run.train(0, 1)
    run.join(2, 3)
    for rank in (0, 1):
        run.say(rank, PhaseDone(1))
    run.say(2, Ready(1))
    run.come_back()
    for rank, state, phase in ((0, "ready", 1), (1, "ready", 1), (2, "ready", 1), (3, "joining", 0)):
        run.say(rank, Returned(rank, state, phase, [], []))
    assert first_phases(run.roster(3)) == {0: 0, 1: 0, 2: 1, 3: 1}
    run.say(3, Ready(0))
    assert not run.roster(0).members[3].ready
    run.say(3, Ready(1))
    assert run.roster(0).members[3].ready


def test_nobody_goes_on_to_another_phase_once_the_run_is_ending() -> None:
    run = Scripted(2)
    run.train(0, 1)
    run.join(2)
    run.take(run.cluster.drain("enough", run.now))
    for rank in (0, 1):
        run.say(rank, PhaseDone(1))
        run.say(rank, Done())
    assert first_phases(run.roster(2))[2] == 0
    run.say(2, Ready(0))
    assert "Drain" in run.kinds(2)

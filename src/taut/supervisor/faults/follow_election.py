"""Workers went on by themselves while the supervisor was not heard, and say so: the supervisor follows. Pure."""

from __future__ import annotations

from taut.core.messages import Heartbeat, View
from taut.supervisor.faults.complaints import MOST_REFUSED
from taut.supervisor.faults.election_claims import ClaimVerdict, Fate
from taut.supervisor.faults.expulsion import ExpulsionPolicy
from taut.supervisor.run.admission import Admission
from taut.supervisor.run.workers import Worker

LEFT_OUT = "lost from sight by most of the workers, while the supervisor was not heard"
MADE_UP = "an election that those named in it know nothing of"
COUNTS_AS = MOST_REFUSED // 3  # refused messages: it happens to an honest worker, too, but not four times in a minute
MOST_TOLD = 64  # memberships, before what is only said to be one is counted no more than while it is said
LEAP = 1 << 16  # elections since the last one that was heard of: days of asking for votes in vain


def hear(roll: Admission, teller: Worker, message: Heartbeat, now: float) -> bool:
    """What this heartbeat says of elections. False: there can be no such one."""
    view, above = message.elected, roll.members.view
    possible = view is None or _possible(roll, teller, view)
    roll.claims.beat(teller.rank, view if possible else None, message.calm, now, above)
    return possible


def _possible(roll: Admission, teller: Worker, view: View) -> bool:
    """One is never most of several; who votes is in a membership that may be in force, with all those voted for."""
    members, named = roll.members, set(view.members)
    known = teller.rank in named and named <= members.workers.keys()
    if not roll.plan.elects or not known or len(named) < max(2, len(view.members)):
        return False
    if view.number <= members.view or roll.ending.verdict is not None:
        return True  # it was heard of before, or nobody exchanges anything any more
    if not view.own or view.version > members.version or view.number > members.view + LEAP:
        return False
    return any(named <= each.members for each in roll.agreement.told)


def settle(roll: Admission, discipline: ExpulsionPolicy, now: float) -> None:
    """Follow those who went on, and refuse those of whom that is not true."""
    claims, workers = roll.claims, roll.members.workers
    claims.claiming -= {rank for rank in claims.claiming if not workers[rank].live}
    if not claims.claiming or roll.ending.verdict is not None:
        return

    def fate(rank: int) -> Fate:
        worker = workers[rank]
        if worker.live:
            return "gone" if worker.detector.suspects(now) else "live"
        return "gone" if worker.party else "ended"

    above = roll.members.view
    verdict = claims.judge(now, above, [each.members for each in roll.agreement.told], fate)
    if verdict is not None:
        follow(roll, verdict, now)
        if verdict.finding == "untrue":
            for rank in verdict.claimers:
                discipline.refused(workers[rank], MADE_UP, now, COUNTS_AS)
    elif claims.unclear(now, above, fate):
        roll.members.version += 1
        roll.tell_roster()


def follow(roll: Admission, verdict: ClaimVerdict, now: float) -> None:
    """Whom they left out is given up, and may come back. Where nobody went on everybody stays, under a roster that is
    later than what was claimed. That counts in any case as what may be in force: it is safe to count too much."""
    members, view = roll.members, verdict.view
    named = f"workers {', '.join(map(str, view.members))}"
    if verdict.finding == "open":
        if len(roll.agreement.told) < MOST_TOLD and roll.agreement.elected(view):
            roll.outbox.record("elected", f"{named} may have gone on together: too few of them are heard to tell")
            roll.tell_roster()
        return
    members.view, members.version = view.number, max(members.version, view.version) + 1
    roll.agreement.elected(view)
    if verdict.finding == "true":
        roll.outbox.record("elected", f"{named} went on together while the supervisor was not heard")
        for worker in [one for one in members.with_state() if one.rank not in view.members]:
            roll.given_up(worker, LEFT_OUT, now, may_return=True)
    else:
        tellers = ", ".join(map(str, verdict.claimers))
        roll.outbox.record("elected", f"{named} did not go on together, as {tellers} said: nobody is given up")
    roll.tell_roster()

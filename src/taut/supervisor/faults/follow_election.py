"""Follows elections: workers elected a membership while the supervisor could not be reached, and report it. Pure."""

from __future__ import annotations

from taut.core.messages import Heartbeat, View
from taut.supervisor.faults.complaints import MOST_REFUSED
from taut.supervisor.faults.election_claims import ClaimVerdict, Fate
from taut.supervisor.faults.expulsion import ExpulsionPolicy
from taut.supervisor.run.admission import Admission
from taut.supervisor.run.workers import WorkerEntry

LEFT_OUT = "most workers could not reach it while the supervisor could not be reached"
MADE_UP = "an election that its members do not know of"
COUNTS_AS = MOST_REFUSED // 3  # refused messages: it happens to honest workers, too, but not four times in a minute
MOST_TOLD = 64  # memberships; further unproven claims count only while they are made
LEAP = 1 << 16  # elections since the last known one: days of failed elections


def hear(admission: Admission, teller: WorkerEntry, message: Heartbeat, now: float) -> bool:
    """Note what this heartbeat says about elections. Return False if such an election is impossible."""
    view, above = message.elected, admission.members.view
    possible = view is None or _possible(admission, teller, view)
    admission.claims.beat(teller.rank, view if possible else None, message.calm, now, above)
    return possible


def _possible(admission: Admission, teller: WorkerEntry, view: View) -> bool:
    """Return whether a claimed election is possible: more than one member, and all of them, the teller included, in
    one live membership."""
    members, named = admission.members, set(view.members)
    known = teller.rank in named and named <= members.workers.keys()
    if not admission.plan.elects or not known or len(named) < max(2, len(view.members)):
        return False
    if view.number <= members.view or admission.ending.verdict is not None:
        return True  # it is known, or workers exchange nothing any more
    if not view.own or view.version > members.version or view.number > members.view + LEAP:
        return False
    return any(named <= each.members for each in admission.memberships.told)


def judge_claims(admission: Admission, expulsion: ExpulsionPolicy, now: float) -> None:
    """Follow the elections that are proven, and refuse those that are not true."""
    claims, workers = admission.claims, admission.members.workers
    claims.claiming -= {rank for rank in claims.claiming if not workers[rank].live}
    if not claims.claiming or admission.ending.verdict is not None:
        return

    def fate(rank: int) -> Fate:
        worker = workers[rank]
        if worker.live:
            return "gone" if worker.detector.suspects(now) else "live"
        return "gone" if worker.party else "ended"

    above = admission.members.view
    verdict = claims.judge(now, above, [each.members for each in admission.memberships.told], fate)
    if verdict is not None:
        follow(admission, verdict, now)
        if verdict.finding == "untrue":
            for rank in verdict.claimers:
                expulsion.refused(workers[rank], MADE_UP, now, COUNTS_AS)
    elif claims.unclear(now, above, fate):
        admission.members.version += 1
        admission.tell_roster()


def follow(admission: Admission, verdict: ClaimVerdict, now: float) -> None:
    """Evict the workers that an election left out; they may rejoin. If no election took place all stay, under a
    roster later than the claim. The claimed membership counts as live in any case, which is the safe side."""
    members, view = admission.members, verdict.view
    named = f"workers {', '.join(map(str, view.members))}"
    if verdict.finding == "open":
        if len(admission.memberships.told) < MOST_TOLD and admission.memberships.elected(view):
            admission.outbox.record("elected", f"{named} may have gone on together: too few of them are heard to know")
            admission.tell_roster()
        return
    members.view, members.version = view.number, max(members.version, view.version) + 1
    admission.memberships.elected(view)
    if verdict.finding == "true":
        admission.outbox.record("elected", f"{named} went on together while the supervisor could not be reached")
        for worker in [one for one in members.with_state() if one.rank not in view.members]:
            admission.expel(worker, LEFT_OUT, now, may_return=True)
    else:
        tellers = ", ".join(map(str, verdict.claimers))
        admission.outbox.record("elected", f"{named} did not go on together, as {tellers} said: all stay")
    admission.tell_roster()

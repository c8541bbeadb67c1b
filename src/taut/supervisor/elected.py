"""Workers went on by themselves while the supervisor was not heard, and say so: the supervisor follows. Pure."""

from __future__ import annotations

from taut.core.messages import View
from taut.supervisor.membership import Worker
from taut.supervisor.roll import Roll

LEFT_OUT = "lost from sight by most of the workers, while the supervisor was not heard"


def follow(roll: Roll, teller: Worker, view: View, now: float) -> bool:
    """Whom they left out is given up, and may come back. False: there can be no such election. That others voted is
    taken on the word of one, for it may be the last who is left of them."""
    members = roll.members
    known = teller.rank in view.members and set(view.members) <= members.workers.keys()
    if not roll.plan.elects or not known or len(set(view.members)) < 2:  # one is never most of several
        return False
    if view.number <= members.view or roll.ending.verdict is not None:
        return True  # it was heard of before, or nobody exchanges anything any more
    members.view, members.version = view.number, max(members.version, view.version) + 1
    roll.agreement.elected(view)
    stayed = ", ".join(map(str, view.members))
    roll.outbox.record("elected", f"workers {stayed} went on together while the supervisor was not heard")
    for worker in [one for one in members.with_state() if one.rank not in view.members]:
        roll.given_up(worker, LEFT_OUT, now, may_return=True)
    roll.tell_roster()
    return True

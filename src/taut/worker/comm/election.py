"""The shell of ``strategies/election/election.py``: words to the other workers, and a roster of our own where they agree
on one.

Belongs to the communication thread, but for ``agreed``, which the training thread sets.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from taut.core.messages import Gone, Presence, Roster, View
from taut.strategies.election.election import Answer, Election
from taut.worker.comm.supervisor_client import SupervisorClient

log = logging.getLogger("taut")
LEFT_OUT = "silent, while no supervisor was heard"


class ElectionDriver:
    """``send``: to another worker, or not; nothing is lost by it. ``enter``: a roster that the workers made. ``agreed``:
    the stamp of the last membership in which all members have told this worker their last round."""

    def __init__(
        self,
        rank: int,
        supervisor: SupervisorClient,
        send: Callable[[int, Presence], None],
        enter: Callable[[Roster], None],
    ) -> None:
        self.agreed = 0
        self._election = Election(rank)
        self._supervisor, self._send, self._enter = supervisor, send, enter
        self._roster: Roster | None = None

    def told(self) -> tuple[int, View | None, bool]:
        """Return what the supervisor is to know: ``agreed``, the present membership if the workers made it, and whether
        this worker is calm: not about to go on without the supervisor."""
        election = self._election
        elected = election.view if election.views and election.view.own else None
        calm = not election.voted and not self._supervisor.uneasy(self._supervisor.clock.now())
        return self.agreed, elected, calm

    def entered(self, roster: Roster | None) -> None:
        """Take the supervisor's roster, if it is a new one."""
        if roster is not None and roster is not self._roster:
            self._roster = roster
            ready = sorted(member.rank for member in roster.members if member.ready)
            self._election.entered(View(roster.view, roster.version, ready))

    def seen(self, sender: int, now: float) -> None:
        self._election.seen(sender, now)

    def heard(self, sender: int, word: Presence, now: float) -> None:
        if self._election.views:
            self._election.agreed(self.agreed)
            self._do(self._election.heard(sender, word, now))

    def tick(self, now: float) -> None:
        link = self._supervisor
        self._election.agreed(self.agreed)
        if self._election.due(now):  # what the rhythm takes is spared in the other ticks
            self._do(self._election.tick(now, link.uneasy(now), link.status.silent_since_s is not None, link.rhythm()))

    def _do(self, answer: Answer) -> None:
        for to, word in answer.tells:
            self._send(to, word)
        if answer.enter is not None:
            self._go_on(answer.enter)

    def _go_on(self, view: View) -> None:
        """Go on in the membership that was agreed on, and tell the others of it."""
        before = self._roster
        assert before is not None
        left = [member.rank for member in before.members if member.ready and member.rank not in view.members]
        stay = [member for member in before.members if member.rank not in left]
        gone = [*before.gone, *(Gone(rank, LEFT_OUT) for rank in left)]
        log.warning(
            "no supervisor is heard: workers %s go on without %s, as most of them agreed",
            ", ".join(map(str, view.members)),
            ", ".join(map(str, left)) or "anybody else's word",
        )
        self._roster = Roster(view.version, stay, gone, view.number)
        self._election.entered(view)
        self._enter(self._roster)
        for to, word in self._election.proclaim():
            self._send(to, word)

"""A group that goes on with a quorum: ``diloco:quorum=K``, whose late members lose nothing.

    mean = sum_i w_i x_i / sum_i w_i        over K contributions at least; of one that comes later nothing is in it

One member, the *coordinator* (the lowest rank), collects and closes the rounds (``backup_workers.py``). It closes one

- at once, when all members have spoken;
- with a quorum of members that trained, when its grace is over: when the coordinator itself needs the mean to train on
  (``pressed``), or, where it is late itself, after its next step. So the grace is as long as waiting costs nothing;
- never before all have spoken, where one of them is ending: the last rounds are of all.

Members without data do not count. If so many have none that K cannot be reached, all others are the quorum.

A member must know the round before it contributes, for a fragment's turn follows from it: a newcomer once all members
have told each other their last rounds. Where these say that the round is another one, its contribution is withdrawn.
"""

from __future__ import annotations

import numpy as np

from taut.strategies.allreduce.backup_workers import BackupGroup
from taut.strategies.allreduce.difference_group import TOKEN
from taut.strategies.allreduce.round_agreement import Contribution
from taut.strategies.api import Membership, Note, Tell, Vector


class QuorumGroup(BackupGroup):
    """One member's machine. ``quorum``: K. ``missed``: what this member gave to the round that is done came too late."""

    def __init__(self, membership: Membership, length: int, quorum: int) -> None:
        super().__init__(membership, length, backup=0)
        self.quorum, self.missed = quorum, False
        self._patient = True  # the coordinator: it can do without the mean
        self._meant = 0  # the round that this member's contribution is for
        self._trained: dict[int, int] = {}  # the last round that each contributed training to

    def _begin(self, mine: Contribution) -> list[Tell]:
        self._meant = self.taken + 1
        return super()._begin(mine)

    def _contribute(self) -> list[Tell]:
        if self.agreed and self._contribution is not None and self.taken + 1 != self._meant:
            self._contribution, self._ends = np.empty(0, np.float32), False
        return super()._contribute()

    def press(self, waits: bool) -> list[Tell]:
        """Close the open round if there is a quorum. ``waits``: this member waits for the mean, until the round is
        over."""
        if not self.agreed or self.coordinator != self.membership.rank:
            return []
        round, self._patient = self.last_round.number, False
        tells = self._close()
        self._patient = not waits or self.last_round.number > round
        return tells

    def _take_mean(self) -> list[Tell]:
        self._patient = True
        return super()._take_mean()

    def _keep(self, buffer: Vector, shared: int, included: bool) -> list[Tell]:
        self.missed = not included
        return super()._keep(buffer, shared, included)

    def _collect(self, sender: int, note: Note, payload: bytes | memoryview) -> list[Tell]:
        if len(payload) > 4 * self.length and len(payload) % 4 == 0 and sender not in self._said:
            weight = float(np.frombuffer(payload, np.float32)[self.length])
            if weight > 2.0 * TOKEN:
                self._trained[sender] = note.round
        return super()._collect(sender, note, payload)

    def _enough(self) -> bool:
        if self._patient or self._ending:
            return False
        round, members = self.last_round.number + 1, self.membership.members
        trained = sum(self._trained.get(member) == round for member in self._said)
        return trained >= max(1, min(self.quorum, len(members) - (len(self._said) - trained)))

"""A group that goes on with the first N of N + b contributions: backup workers.

    mean = sum_i w_i x_i / sum_i w_i        over the first N contributions to the round; later ones are dropped

So that all apply the same set, one member, the *coordinator* (the lowest rank), collects the contributions, closes the
round and sends everybody the mean. Who comes late finds the mean there, drops its own vector, and takes the means of
all rounds that it missed, in order. Those without data are not counted: of n members with data, n - b are enough, or one.

When the membership changes, all members tell each other the last mean that they have (as in ``group.py``); who has the
latest sends the rest to who lacks it, and contributions to the open round are sent again, to the coordinator of now. If
the coordinator dies, the next one goes on. What it had closed and nobody got is closed anew: no living member applied it.

Bounds: nobody has more than ``AHEAD`` means to catch up on, nor more than ``WINDOW`` under way; then the others wait.
Paper: Chen et al. 2016, "Revisiting Distributed Synchronous SGD".
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from taut.errors import MalformedMessage
from taut.strategies.allreduce.group import OWN_NUMBERS
from taut.strategies.allreduce.round_agreement import NEW, Contribution, MemberRound, RoundAgreement
from taut.strategies.api import Membership, Note, Tell, Vector

WINDOW = 4
AHEAD = 32


class BackupGroup(RoundAgreement):
    """One member's machine, of the same shape as ``Group``. ``backup``: how many may be late.

    ``owed``: rounds that were closed without this worker and are not taken yet: ``begin`` gives the mean of the next of
    them at once. ``dropped``: contributions of this worker that came too late.
    """

    kinds = {"gradient": 2, "mean": 3, "have": 1, "last": 2}  # noqa: RUF012
    last_round_kind = "last"

    def __init__(self, membership: Membership, length: int, backup: int, since: int | None = None) -> None:
        super().__init__(membership, length, since=since)
        self.backup, self.dropped = backup, 0
        self.taken = 0  # the last round whose mean this worker has taken
        self._contribution: Vector | None = None  # weighted, and its numbers; empty: nothing to give
        self._ends = False
        self._means: dict[int, Vector] = {}
        self._shared = 0  # everybody has the means up to here
        # the coordinator's
        self._said: dict[int, bool] = {}  # who has spoken in the open round, and whether it had something to give
        self._ending = 0
        self._sum: Vector | None = None
        self._have: dict[int, int] = {}
        self._least = 0  # all must have the means up to here before another round is closed

    @property
    def completed(self) -> int:
        return self.taken

    @property
    def owed(self) -> int:
        return max(0, self.last_round.number) - self.taken if self._contribution is None else 0

    @property
    def coordinator(self) -> int:
        return self.membership.members[0]

    def _begin(self, mine: Contribution) -> list[Tell]:
        """Take part in the round after the last one ``taken``, or take its mean if it is closed."""
        assert self._contribution is None, "the last round is not done"
        tells = self._tell_last_round()
        if self.owed:
            self.dropped += mine.weight > 0.0
            return tells + self._take_mean()
        weighted = np.empty(self.length + len(mine.numbers) if mine.weight > 0.0 else 0, np.float32)
        if len(weighted):
            np.multiply(mine.values, np.float32(mine.weight), out=weighted[: self.length])
            weighted[self.length :] = mine.numbers
        self._contribution, self._ends = weighted, bool(mine.numbers[1])
        return tells + self._contribute()

    def take_over(self, round: int) -> list[Tell]:
        self.bare, self.last_round, self.taken, self._counted = False, MemberRound(round, True), round, True
        if self._contribution is not None:
            self._contribution = np.empty(0, np.float32)
        return self._contribute() + self._receipt()

    def _agree(self, last_rounds: Mapping[int, MemberRound]) -> list[Tell]:
        """Hand out what others lack, and open the next round. A member's last round is that of the last mean it has."""
        members, rank = self.membership.members, self.membership.rank
        real = {member: last_rounds[member].number for member in members if not last_rounds[member].joined_after}
        top = max(0, *(real.values() if real else (last_rounds[member].number for member in members)))
        # Who joined after it has no mean yet. Who has taken part since an earlier round gets what followed; the others
        # start here.
        had = {m: last_rounds[m].number if real and 0 <= last_rounds[m].number <= top else top for m in members}
        self._look_round(last_rounds, top, follows=0 <= self.last_round.number < top)  # the means that it lacks are kept
        if self.bare or (self.last_round.joined_after and had[rank] == top):
            self.last_round, self.taken = MemberRound(top, True), top
        # Nothing is closed before all have said that they agree: who is new must stay told from who is behind.
        self._have = dict.fromkeys(members, NEW)
        self._least, self._said, self._ending, self._sum = top, {}, 0, None
        tells: list[Tell] = []
        if real and rank == min(member for member in real if real[member] == top):
            for member in members:
                missed = range(had[member] + 1, top + 1)
                if self._means.keys() >= set(missed):  # else it is one that came late, and is given the state
                    tells += [self._mean_for(member, number, True) for number in missed]
        return tells + self._contribute() + self._receipt() + self._retake()

    def _contribute(self) -> list[Tell]:
        """Tell the coordinator what we have, or that it is nothing."""
        if not self.agreed or self._contribution is None or self.bare:
            return []
        note = Note("gradient", self.taken + 1, 0, [self.membership.version, float(self._ends)])
        payload = memoryview(self._contribution.view(np.uint8))  # type: ignore[arg-type]
        if self.coordinator == self.membership.rank:
            return self._collect(self.membership.rank, note, payload)
        return [Tell(self.coordinator, note, payload)]

    def _take(self, sender: int, note: Note, payload: bytes) -> list[Tell]:
        if note.kind == "mean":
            return self._got(note, payload)
        if self.coordinator != self.membership.rank:
            raise MalformedMessage(f"{note.kind} for the coordinator, which is worker {self.coordinator}")
        if note.kind == "have":
            self._have[sender] = max(self._have[sender], min(note.round, max(self.last_round.number, self._least)))
            return self._close()
        return self._collect(sender, note, payload)

    def _got(self, note: Note, payload: bytes) -> list[Tell]:
        if self.carries and self.last_round.joined_after and note.round <= self.last_round.number:
            return []  # it is in the state that we were given, or will be
        if note.round != self.last_round.number + 1:
            raise MalformedMessage(f"the mean of round {note.round} after that of round {self.last_round.number}")
        buffer = np.frombuffer(payload, np.float32)
        if len(buffer) < self.length + OWN_NUMBERS:
            raise MalformedMessage(f"a mean of {len(payload)} bytes for {self.length} elements")
        return self._keep(buffer, int(note.numbers[1]), bool(note.numbers[2]))

    def _keep(self, buffer: Vector, shared: int, included: bool) -> list[Tell]:
        """Close a round with its sum."""
        number = self.last_round.number + 1
        self.last_round = MemberRound(number, False)
        self._means[number] = buffer
        self._said, self._ending, self._sum = {}, 0, None  # of that round, where somebody else had closed it before
        self._shared = max(self._shared, min(shared, number))
        tells: list[Tell] = []
        if self._contribution is not None and number == self.taken + 1:
            self.dropped += len(self._contribution) > 0 and not included
            tells += self._take_mean()
        else:
            tells += self._receipt()
        return tells + self._retake()  # contributions to the round that is open now

    def _take_mean(self) -> list[Tell]:
        self.taken += 1
        self._contribution = None
        self._finish(self._means[self.taken])
        for number in [one for one in self._means if one <= min(self._shared, self.taken)]:
            del self._means[number]
        return self._receipt()

    def _receipt(self) -> list[Tell]:
        """Tell the coordinator how far we are; not, if there is so much to catch up on that the others should wait."""
        number = min(self.last_round.number, self.taken + AHEAD)
        if not self.agreed or self.bare or self._have[self.membership.rank] >= number:
            return []
        self._have[self.membership.rank] = number
        if self.coordinator == self.membership.rank:
            return self._close()
        return [Tell(self.coordinator, Note("have", number, 0, [self.membership.version]))]

    # -------------------------------------------------------------------------------------------- coordinator's

    def _collect(self, sender: int, note: Note, payload: bytes | memoryview) -> list[Tell]:
        if note.round <= self.last_round.number:
            return []  # too late: the mean is on its way
        if note.round > self.last_round.number + 1:
            self._early.append((sender, note, bytes(payload)))  # we are behind ourselves
            return []
        values = np.frombuffer(payload, np.float32) if len(payload) % 4 == 0 else None
        size = len(self._sum) if self._sum is not None else self.length + OWN_NUMBERS
        if values is None or (len(values) not in (0, size) if self._sum is not None else 0 < len(values) < size):
            raise MalformedMessage(f"a gradient of {len(payload)} bytes for {self.length} elements")
        if sender not in self._said:
            self._said[sender] = bool(len(values))
            self._ending += bool(note.numbers[1])
            if len(values) and self._sum is None:
                self._sum = values.copy()
            elif self._sum is not None and len(values):
                np.add(self._sum, values, out=self._sum)
        return self._close()

    def _close(self) -> list[Tell]:
        """Close the open round, if enough have contributed and nobody is too far behind."""
        members, said = self.membership.members, self._said
        shared = min(self._have.values())
        if not (len(said) == len(members) or self._enough()) or self.last_round.number < self._least:
            return []
        if shared < self._least or self.last_round.number - shared >= WINDOW:
            return []
        total = self._sum if self._sum is not None else np.zeros(self.length + OWN_NUMBERS, np.float32)
        total[self.length + 1 : self.length + 3] = self._ending, len(said)
        number, included = self.last_round.number + 1, said.get(self.membership.rank, False)
        self._means[number] = total
        self._shared = max(self._shared, shared)
        tells = [self._mean_for(other, number, said.get(other, False)) for other in self.membership.others]
        return tells + self._keep(total, shared, included)

    def _enough(self) -> bool:
        """Return whether the open round may be closed, though not all have spoken."""
        given = sum(self._said.values())
        return given >= max(1, len(self.membership.members) - (len(self._said) - given) - self.backup)

    def _mean_for(self, member: int, number: int, included: bool) -> Tell:
        note = Note("mean", number, 0, [self.membership.version, self._shared, float(included)])
        return Tell(member, note, memoryview(self._means[number].view(np.uint8)))  # type: ignore[arg-type]

"""A group whose rounds are a robust mean: everybody sees everybody's vector, and nobody's word is taken for another's.

    mean = robust(x_1, ..., x_p)        median, trimmed or clip: see robust_mean.py; all count alike

An all-reduce passes sums from hand to hand, and whoever passes one on can change it. Dealing out shards, each merged by
one member, would send as little as a ring; but the one that merges a shard decides what is in it. So whole vectors go
from everybody to everybody: each sends (p - 1) n elements, p / 2 times as many as in a ring, and keeps p vectors.

Weights (samples) are claims, and so are not used: with them, one liar could weigh more than all others. A vector that is
not finite, or of another length, is refused and the round goes on without it.

A round ends in two steps: everybody tells when it has all vectors, and merges when all have told so. Hence, if anybody
has completed a round when the members change, everybody who took part in it has its vectors and completes it by itself,
to the same bits. No result is ever taken from another member, as in a ``Group``: a liar's would replace the model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from taut.errors import MalformedMessage
from taut.strategies.allreduce.group import Group
from taut.strategies.allreduce.robust_mean import merge
from taut.strategies.allreduce.round_agreement import Contribution, MemberRound
from taut.strategies.api import Membership, Note, Refuse, Tell, Vector

Shares = dict[int, bytes | None]  # None: it was refused
# Whose vectors are merged: of these members, in the round after so many, where so many said yes to each number.
Voters = Callable[[Collection[int], int, Sequence[float]], Collection[int]]


def everybody(members: Collection[int], completed: int, says: Sequence[float]) -> Collection[int]:
    """Return all members."""
    return members


class RobustGroup(Group):
    """One member's machine, with the interface of a ``Group``; ``kind``: of the mean (``robust_mean.KINDS``). ``voters``:
    whose vectors count, by what all know alike and nobody claims for itself; everybody's, if not given. ``voted``: those
    whose did, in the round that is done.

    >>> from taut.topologies.registry import parse
    >>> groups = [RobustGroup(Membership(rank, (0, 1, 2), parse("complete"), 1), 1, "median") for rank in (0, 1, 2)]
    >>> x = [np.float32([4]), np.float32([5]), np.float32([9e9])]
    >>> under_way = [(rank, tell) for rank in (0, 1, 2) for tell in groups[rank].begin(x[rank])]
    >>> while under_way:
    ...     sender, tell = under_way.pop(0)
    ...     under_way += [(tell.to, more) for more in groups[tell.to].heard(sender, tell.note, bytes(tell.payload))]
    >>> groups[0].mean(x[0]), x[0].tolist()
    (3.0, [5.0])
    """

    kinds = {"share": 1, "have": 1, "stand": 2}  # noqa: RUF012

    def __init__(self, membership: Membership, length: int, kind: str, voters: Voters = everybody) -> None:
        super().__init__(membership, length)
        self.kind, self.voters = kind, voters
        self.voted: frozenset[int] = frozenset()
        self._share = b""  # what we give to the round that we are in: the vector, then the numbers
        self._shares: Shares | None = None  # of the round, while it is run
        self._full: Shares | None = None  # all of them, and we have told so
        self._have: set[int] = set()  # who has told so
        self._refusals: list[Refuse] = []

    def _begin(self, mine: Contribution) -> list[Tell]:
        """Join with weight 1, whatever was given. ``extra``: yes or no, each; how many say yes comes out."""
        assert self._contribution is None, "the last round is not done"
        numbers = (1.0, *mine.numbers[1:])
        self._share = mine.values.tobytes() + np.array(numbers, np.float32).tobytes()
        return super()._begin(Contribution(mine.values, 1.0, numbers, kept=True))

    def members_changed(self, membership: Membership) -> list[Tell]:
        if membership.version != self.membership.version:
            self._shares, self._have = None, set()  # what is full stays: somebody may have completed the round
        return super().members_changed(membership)

    def mean(self, out: Vector) -> float:
        """Write the robust mean of the round that is ``done`` to ``out``; of how many vectors. Of none: ``out`` stays."""
        assert self._result is not None, "no round is done"
        if self.contributors:
            out[:] = self._result[: self.length]
        return float(self.contributors)

    def refused(self) -> list[Refuse]:
        refusals, self._refusals = self._refusals, []
        return refusals

    def _agree(self, last_rounds: Mapping[int, MemberRound]) -> list[Tell]:
        real = [last_round.number for last_round in last_rounds.values() if not last_round.joined_after]
        top = max(real or [last_round.number for last_round in last_rounds.values()])
        if real and self.last_round.number == top - 1:
            if self._contribution is None or self._full is None:
                self.agreed = False  # that cannot be: somebody lies, and there is no round before the members change
                return []
            self._conclude(self._full)
        elif self.last_round.joined_after:
            self.last_round = MemberRound(max(0, top), True)
        return self._retake() + self._run()

    def _run(self) -> list[Tell]:
        """Send our share, if everybody knows to whom."""
        if self._contribution is None or not self.agreed or self._shares is not None:
            return []
        self._full = None
        self._shares = {self.membership.rank: self._share if self._fault(self._share) is None else None}
        note = self._note("share")
        tells = [Tell(other, note, self._share) for other in self.membership.others]
        return tells + self._look() + self._retake()

    def _take(self, sender: int, note: Note, payload: bytes) -> list[Tell]:
        """Take a share, or the news that a member has them all."""
        round = self.last_round.number + 1
        if note.round != round or self._shares is None:
            if note.round not in (round, round + 1):
                raise MalformedMessage(f"a {note.kind} of round {note.round}; this worker is in round {round}")
            self._early.append((sender, note, payload))
            return []
        if note.kind == "have":
            self._have.add(sender)
            return self._close()
        if sender in self._shares:
            raise MalformedMessage(f"a second share of worker {sender} in round {round}")
        fault = self._fault(payload)
        if fault is not None:
            self._refusals.append(Refuse(sender, fault))
        self._shares[sender] = payload if fault is None else None
        return self._look()

    def _fault(self, share: bytes) -> str | None:
        """Return what is wrong with a share, if anything is."""
        if len(share) != len(self._share):
            return f"a share of {len(share)} bytes instead of {len(self._share)}"
        if not np.isfinite(np.frombuffer(share, np.float32)).all():
            return "a share with numbers that are not finite"
        return None

    def _look(self) -> list[Tell]:
        """Tell the others when all members' shares are here."""
        assert self._shares is not None
        if len(self._shares) < len(self.membership.members):
            return []
        self._full = self._shares
        self._have.add(self.membership.rank)
        note = self._note("have")
        return [Tell(other, note) for other in self.membership.others] + self._close()

    def _close(self) -> list[Tell]:
        """Merge the shares when all members have told that they have them."""
        if self._full is not None and self._have >= set(self.membership.members):
            self._conclude(self._full)
        return []

    def _conclude(self, full: Shares) -> None:
        """Merge the shares: all members merge the same in the same order, hence to the same bits."""
        given = {rank: np.frombuffer(share, np.float32) for rank, share in sorted(full.items()) if share is not None}
        buffer = self._buffer(self.last_round.number + 1)
        buffer[: self.length] = np.nan
        buffer[self.length :] = sum(one[self.length :] > 0.0 for one in given.values()) if given else 0.0
        says = [float(number) for number in buffer[self.length :]]
        self.voted = frozenset(self.voters(sorted(full), self.completed, says)) & given.keys() or frozenset(given)
        if given:
            votes = [given[rank][: self.length] for rank in sorted(self.voted)]
            merge(self.kind, votes, buffer[: self.length])
        self._share, self._shares, self._full, self._have = b"", None, None, set()
        self._complete(buffer)

    def _note(self, kind: str) -> Note:
        return Note(kind, self.last_round.number + 1, self.part, [self.membership.version])

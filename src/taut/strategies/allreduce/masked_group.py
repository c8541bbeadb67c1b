"""A group of masked sums: everybody learns the sum of a round, and nobody a single contribution.

    v_i = round(2^24 w_i x_i)        y_i = v_i + masks that cancel        sum_i y_i = sum_i v_i   (mod 2^64)

Integers add without rounding in any order, so the masks (``pairwise_masks.py``) cancel exactly, and all members have the
same bits. The weight and the other numbers of a contribution are masked with it. An element takes 8 bytes on the wire.

Before a round each member tells all others a public key, made for this round, whether it has anything to give, and
whether this is its first round (an *offer*). Where fewer than ``FEWEST`` have, the sum would tell too much of one of
them: nobody gives anything, and the round is *withheld*. Where it is somebody's first round, the others then give the
last mean, ``common``, with a weight below 0: a newcomer may have that of an earlier round, and all must have the same. A
contribution that is not finite or too large for the integers is left out, as if there were none.

Drop-outs: who dies after the offers leaves masks in the sum that nothing cancels. As in every ``Group`` the round is then
run again by those who are left, with new keys. (Bonawitz et al. have shares of all secrets held by the others instead,
because a phone is gone in every round; among tens of workers a death is rare, a round takes seconds, and nobody then
holds secrets of another.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from taut.collectives.wire import Wire
from taut.errors import MalformedMessage
from taut.strategies.allreduce.group import OWN_NUMBERS, Group
from taut.strategies.allreduce.pairwise_masks import KEY_NBYTES, WORD_NBYTES, RoundKeys, Words
from taut.strategies.allreduce.round_agreement import Contribution
from taut.strategies.api import Membership, Note, Tell, Vector

FEWEST = 3  # of two, each could subtract its own from the sum
SCALE = 2.0**24  # so many integers between two whole numbers
ROOM = 2.0**62  # a sum stays below: half of the positive integers


@dataclass(frozen=True)
class Integers(Wire):
    """Elements as integers of 64 bits, which add modulo 2^64."""

    name: str = "uint64"

    @property
    def full(self) -> bool:
        return True

    @property
    def dtype(self) -> np.dtype[np.uint64]:  # type: ignore[override]
        return np.dtype(np.uint64)


class MaskedGroup(Group):
    """One member's machine, with the interface of a ``Group``. ``withheld``: of the round that is done, whether too few
    had something to give; ``offered``: how many had, as far as this member was told; ``unusable``: how many contributions
    of this member were left out. ``common``: the last mean, which the caller keeps up to date."""

    kinds = {"offer": 3, "piece": 3, "stand": 2, "result": 1}  # noqa: RUF012

    def __init__(self, membership: Membership, length: int, schedule: str = "ring") -> None:
        super().__init__(membership, length, schedule)
        self._wire = Integers()
        self.withheld = False
        self.offered = self.unusable = 0
        self.common: Vector | None = None
        self._keys: RoundKeys | None = None  # of the round that we are in, once we have offered
        self._offers: dict[int, tuple[bytes, bool, bool]] = {}  # of that round, under this version
        self._fixed: Words | None = None  # what we have to give to it; None: nothing

    @property
    def element_nbytes(self) -> int:
        return WORD_NBYTES

    @property
    def finite(self) -> bool:
        return True

    def mean(self, out: Vector) -> float:
        """Write the mean of the round that is ``done`` to ``out`` and return the total weight. If 0, ``out`` stays. Of a
        round that was withheld, the mean is ``common``, or nothing."""
        assert self._result is not None, "no round is done"
        sums = self._result.view(np.int64)
        total = float(sums[self.length])
        if total:
            out[:] = sums[: self.length] / total
        return total / SCALE

    def members_changed(self, membership: Membership) -> list[Tell]:
        if membership.version != self.membership.version:
            self._forget_offers()
        return super().members_changed(membership)

    def _forget_offers(self) -> None:
        self._keys, self._offers, self._fixed = None, {}, None

    def _take(self, sender: int, note: Note, payload: bytes) -> list[Tell]:
        if note.kind != "offer":
            return super()._take(sender, note, payload)
        round = self.last_round.number + 1
        if note.round != round:
            if note.round != round + 1:
                raise MalformedMessage(f"an offer of round {note.round}; this worker is in round {round}")
            self._early.append((sender, note, payload))
            return []
        said = set(note.numbers[1:])
        if sender in self._offers or not said <= {0.0, 1.0} or len(payload) != KEY_NBYTES:
            raise MalformedMessage(f"an offer of {len(payload)} bytes with the numbers {note.numbers}")
        RoundKeys().check(payload)
        self._offers[sender] = payload, bool(note.numbers[1]), bool(note.numbers[2])
        return self._run()

    def _run(self) -> list[Tell]:
        """Offer to take part, if everybody knows with whom; start the all-reduce once all have offered."""
        if self._contribution is None or not self.agreed or self._behind or self.bare or self._reduction is not None:
            return []
        if self._keys is None:
            return self._offer()
        if not self._offers.keys() >= set(self.membership.members):
            return []
        self._buffer(self.last_round.number + 1)[:] = self._masked()
        return super()._run()

    def _offer(self) -> list[Tell]:
        mine, version = self._contribution, self.membership.version
        assert mine is not None
        self._keys, self._fixed = RoundKeys(), self._integers(mine)
        gives, first = self._fixed is not None, any(mine.numbers[OWN_NUMBERS : OWN_NUMBERS + 1])
        self._offers[self.membership.rank] = self._keys.public, gives, first
        note = Note("offer", self.last_round.number + 1, self.part, [version, float(gives), float(first)])
        tells = [Tell(other, note, self._keys.public) for other in self.membership.others]
        return tells + self._retake() + self._run()

    def _integers(self, mine: Contribution) -> Words | None:
        """Return what a member gives as integers; None if that is nothing, or cannot be written so."""
        if mine.weight < 1.0:  # a worker that has not trained
            return None
        weighted = mine.values.astype(np.float64) * mine.weight
        scaled = SCALE * np.concatenate([weighted, np.array(mine.numbers)])
        if not np.abs(scaled).max() < ROOM / len(self.membership.members):  # or NaN
            self.unusable += 1
            return None
        return np.rint(scaled).astype(np.int64).view(np.uint64)

    def _masked(self) -> Words:
        """Return this member's contribution with its masks."""
        mine, membership = self._contribution, self.membership
        assert mine is not None and self._keys is not None
        fixed, self.offered = self._fixed, sum(gives for _, gives, _ in self._offers.values())
        if fixed is None or self.offered < FEWEST:
            fixed = np.zeros(self.length + len(mine.numbers), np.uint64)
            if self.offered < FEWEST and self._tells_common:
                assert self.common is not None
                whole = -SCALE * np.append(self.common.astype(np.float64), 1.0)
                fixed[: self.length + 1] = np.rint(whole).astype(np.int64).view(np.uint64)
            said = np.array(mine.numbers[1 : OWN_NUMBERS + 1])  # who ends, who is there, whose first round it is
            fixed[self.length + 1 : self.length + OWN_NUMBERS + 1] = (SCALE * said).astype(np.uint64)
        public = {rank: key for rank, (key, _, _) in self._offers.items()}
        self._keys.mask(fixed, membership.rank, public, (self.last_round.number + 1, membership.version, self.part))
        return fixed

    @property
    def _tells_common(self) -> bool:
        """Return whether this member gives the last mean to a round that is withheld: where it is somebody's first, those
        do for whom it is not; if it is the first of all, all do."""
        firsts = {rank for rank, (_, _, first) in self._offers.items() if first}
        return bool(firsts) and (self.membership.rank not in firsts or firsts == self._offers.keys())

    def _fill(self, buffer: Vector, lo: int, hi: int) -> None:
        """Leave the buffer: it was filled at once."""

    def _complete(self, buffer: Vector) -> None:
        self._forget_offers()
        super()._complete(buffer)

    def _finish(self, result: Vector) -> None:
        self._result, self.done = result, True
        weight, ending, contributors, *self.extra = (result.view(np.int64)[self.length :] / SCALE).tolist()
        self.withheld, self.ending, self.contributors = weight <= 0.0, round(ending), round(contributors)

    def _room(self, size: int) -> Vector:
        return np.zeros(size, self._wire.dtype)

"""A group that averages weights as a codec writes their differences from a common reference.

    q_i = Q(w_i (x_i - ref) + what i left out before);        ref  <-  ref + sum_i q_i / sum_i w_i;        mean = ref

For methods whose members all go on from the mean. What a payload leaves out waits at its sender, since x is replaced
(Qsparse-local-SGD); a codec without bias leaves nothing waiting (FedPAQ). A member without training sends nothing.

**Copies of their own** (``own``), for methods whose members keep x (``admm``): what is left out is still in x then, and
would count twice. Each member keeps what the others know of it, y_i, and sends differences from that (EF21):

    q_i = Q(x_i - y_i);    y_i  <-  y_i + d q_i;    ref  <-  ref + d sum_i q_i / p        ref is the mean of all y

with d = 1, below that for a codec without bias (``VectorCoder.damping``). All count alike.

When the members change, all tell a hash of their reference. If some member has another one (a newcomer has its donor's
weights, a worker that rejoins its own), or if ``own`` copies of the gone would stay in the mean, the next round is a
plain all-reduce of whole vectors, after which all have the same reference. A member that encoded its part before gives
what the payload stands for, so nothing is lost or counted twice. Whoever dies, the reference is after the last round.

Papers: Basu et al. 2019, "Qsparse-local-SGD"; Reisizadeh et al. 2020, "FedPAQ"; Richtarik et al. 2021, "EF21".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np

from taut.strategies.allreduce.compressed_group import CompressedGroup, pays
from taut.strategies.allreduce.group import OWN_NUMBERS, Group
from taut.strategies.allreduce.masked_group import MaskedGroup
from taut.strategies.allreduce.robust_group import RobustGroup, Voters, everybody
from taut.strategies.allreduce.round_agreement import Contribution, MemberRound
from taut.strategies.api import Local, Membership, Note, Tell, Vector, VectorCoder
from taut.strategies.delivery.copies import shortens

DIGEST_NBYTES = 6  # a whole number that a float64 holds
# The weight of a worker that has not trained: far below the rounding of any weight of samples, yet not zero.
TOKEN = 2.0**-20


def compresses(coder: VectorCoder | None) -> bool:
    """Return whether rounds are of what the codec writes: it is shorter than float32, and than a ring of that.

    >>> compresses(None)
    False
    """
    return shortens(coder) is not None and coder is not None and pays(coder.bits, coder.workers)


def group_of(
    membership: Membership,
    local: Local,
    schedule: str = "ring",
    robust: str = "none",
    voters: Voters = everybody,
    own: bool = False,
    masked: bool = False,
) -> Group:
    """Return the group that makes the mean of the weights: the robust one where ``robust`` is not none, the one of masked
    sums where they are ``masked``, and one of differences where the run's codec makes them shorter."""
    if masked:
        return MaskedGroup(membership, len(local.x), schedule)
    if robust != "none":
        return RobustGroup(membership, len(local.x), robust, voters)
    if local.coder is not None and compresses(local.coder):
        return DifferenceGroup(membership, local.coder, local.x.copy(), schedule, own)
    return Group(membership, len(local.x), schedule)


class DifferenceGroup(CompressedGroup):
    """One member's machine, with the interface of a ``Group``. ``reference``: changed in place, a copy of the initial
    weights at first. ``own``: members keep their x, and what the others know of it."""

    kinds = {"share": 1, "piece": 3, "stand": 3, "result": 2}  # noqa: RUF012

    def __init__(
        self, membership: Membership, coder: VectorCoder, reference: Vector, schedule: str = "ring", own: bool = False
    ) -> None:
        super().__init__(membership, len(reference), coder, schedule=schedule)
        self.reference = reference
        self.known: Vector | None = reference.copy() if own else None  # what the others know of this member's x
        self._whole = False  # the round that comes next, or is under way, is of whole vectors
        self._was_whole = False  # the last one was
        self._instead: Contribution | None = None  # what this member gives to a round of whole vectors

    def rebase(self, reference: Vector) -> None:
        """Take another reference, as all members do after the same round, before they join the next one."""
        self.reference[:] = reference

    def mean(self, out: Vector) -> float:
        """Write the mean of the round that is ``done`` to ``out``."""
        assert self._result is not None, "no round is done"
        out[:] = self.reference
        return float(self._result[self.length])

    # ------------------------------------------------------------------------------------------ the reference

    def _details(self) -> tuple[float, ...]:
        return (float(int.from_bytes(blake2b(self.reference.tobytes(), digest_size=DIGEST_NBYTES).digest())),)

    def _result_details(self) -> tuple[float, ...]:
        return (float(self._was_whole),)

    def _agree(self, last_rounds: Mapping[int, MemberRound]) -> list[Tell]:
        joined = [one for one in last_rounds.values() if one.joined_after]
        equal = len({one.details for one in last_rounds.values()}) == 1
        changed = self.known is not None and len(joined) < len(last_rounds)
        self._whole = changed or bool(joined and not equal)
        return super()._agree(last_rounds)

    # ---------------------------------------------------------------------------------------------- one round

    def _begin(self, mine: Contribution) -> list[Tell]:
        """Join a round. What is written of the values depends on the members, who may still have to agree."""
        return Group._begin(self, mine)

    def _run(self) -> list[Tell]:
        mine = self._contribution
        if mine is None or not self.agreed or self._behind:
            return []
        if self._whole:
            self._instead = self._instead or self._whole_contribution(mine)
            return Group._run(self)
        if not self._share:
            self._share = bytes(self._written(mine)) + np.array(mine.numbers, np.float32).tobytes()
        return super()._run()

    def _written(self, mine: Contribution) -> bytes | memoryview:
        """Return the payload; empty for a member that has not trained."""
        if mine.weight <= TOKEN:
            return b""
        if self.known is None:
            return self._coder.encode(mine.values - self.reference, mine.weight)
        return self._coder.difference(mine.values - self.known)

    def _whole_contribution(self, mine: Contribution) -> Contribution:
        """Return what this member gives to a round of whole vectors: what it has written already, if it has."""
        if self.known is not None:
            values = mine.values if mine.weight > TOKEN else self.known
            return Contribution(values.copy(), 1.0, (1.0, *mine.numbers[1:]))
        payload = self._split(self._share)[0] if self._share else b""
        if not payload:
            return mine
        values = self.reference.copy()
        self._coder.add(payload, values, 1.0 / mine.weight)
        return replace(mine, values=values)

    @property
    def _summed(self) -> Contribution | None:
        return self._instead or self._contribution

    def _take(self, sender: int, note: Note, payload: bytes) -> list[Tell]:
        return Group._take(self, sender, note, payload) if note.kind == "piece" else super()._take(sender, note, payload)

    def _take_result(self, note: Note, payload: bytes) -> list[Tell]:
        following, self._whole = self._whole, bool(note.numbers[1])
        try:
            return super()._take_result(note, payload)
        finally:
            self._whole = following

    def _sum(self, payloads: Sequence[memoryview], weights: Sequence[float], out: Vector) -> None:
        if self.known is None:
            super()._sum(payloads, weights, out)
            return
        out[:] = 0.0
        for payload in payloads:
            self._coder.add(payload, out, self._coder.damping)

    def _complete(self, buffer: Vector) -> None:
        weight, _, members = buffer[self.length : self.length + OWN_NUMBERS].tolist()
        self._move(buffer[: self.length], weight, members)
        self._was_whole, self._whole, self._instead = self._whole, False, None
        super()._complete(buffer)

    def _move(self, summed: Vector, weight: float, members: float) -> None:
        """Move the reference, and what the others know of this member, by the result of a round."""
        if self._whole:
            if weight:
                np.divide(summed, np.float32(weight), out=self.reference)
            if self.known is not None and self._summed is not None:
                self.known[:] = self._summed.values
        elif self.known is None:
            if weight:
                self.reference += summed / np.float32(weight)
        else:
            self.reference += summed / np.float32(members)
            if self._share:
                self._coder.add(self._split(self._share)[0], self.known, self._coder.damping)

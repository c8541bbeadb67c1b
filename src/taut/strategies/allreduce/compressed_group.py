"""A group that averages what a codec writes down: everybody sends to everybody, and all sum in the order of ranks.

    q_i = Q(w_i x_i + what i left out before);        mean = sum_i q_i / sum_i w_i

Payloads of most codecs cannot be added without decoding them, so there is no ring to pass them round: a round is an
all-gather of short messages. All sum the same payloads in the same order, hence to the same bits. What a payload leaves
out waits at its sender, in the same units (samples times gradient); who has no data sends nothing, and goes on waiting.

Members come and go as in a ``Group``: a round that a death has broken is run again with the payloads that were kept, for
feedback must not be counted twice, and who is behind is sent the sum, dense.

An all-gather of p workers sends (p - 1) n bits each, a ring 2 (p - 1) / p 32 n: it ``pays`` where bits < 64 / p.
Paper: Karimireddy et al. 2019, "Error feedback fixes signSGD and other gradient compression schemes".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from taut.errors import MalformedMessage
from taut.strategies.allreduce.group import OWN_NUMBERS, Group
from taut.strategies.allreduce.round_agreement import Contribution
from taut.strategies.api import Membership, Note, Tell, Vector, VectorCoder

RING_BITS = 64.0  # that a ring sends per element and worker, times (p - 1) / p
NUMBER_NBYTES = 4


def pays(bits: float, workers: int) -> bool:
    """Whether payloads of so many bits per element, from everybody to everybody, are less than a ring of float32 sends.

    >>> pays(8.0, 4), pays(8.0, 8), pays(0.64, 99)
    (True, False, True)
    """
    return bits * workers < RING_BITS


class CompressedGroup(Group):
    """One member's machine, with the interface of a ``Group``; ``coder``: the worker's own."""

    kinds = {"share": 1, "stand": 2, "result": 1}  # noqa: RUF012

    def __init__(
        self,
        membership: Membership,
        length: int,
        coder: VectorCoder,
        part: int = 0,
        since: int | None = None,
        schedule: str = "ring",
    ) -> None:
        super().__init__(membership, length, schedule, part, since)
        self._coder = coder
        self._share: bytes | memoryview = b""  # what we give to the round that we are in: the payload, then the numbers
        self._shares: dict[int, bytes | memoryview] | None = None  # of the round, while it is run

    def _begin(self, mine: Contribution) -> list[Tell]:
        """Encode the values, once: they need not be kept."""
        assert self._contribution is None, "the last round is not done"
        self._share = self._coder.encode(mine.values, mine.weight, np.array(mine.numbers, np.float32).tobytes())
        return super()._begin(replace(mine, kept=True))

    def members_changed(self, membership: Membership) -> list[Tell]:
        if membership.version != self.membership.version:
            self._shares = None
        return super().members_changed(membership)

    def take_over(self, round: int) -> list[Tell]:
        if self._contribution is not None:
            ending = self._contribution.numbers[1]
            others = len(self._contribution.numbers) - OWN_NUMBERS
            self._share = np.array([0.0, ending, 1.0] + [0.0] * others, np.float32).tobytes()
        return super().take_over(round)

    def _run(self) -> list[Tell]:
        """Send our share, if everybody knows to whom."""
        idle = self._contribution is None or self._shares is not None
        if idle or not self.agreed or self._behind or self.bare:
            return []
        self._shares = {self.membership.rank: self._share}
        note = Note("share", self.last_round.number + 1, self.part, [self.membership.version])
        tells = [Tell(other, note, self._share) for other in self.membership.others]
        self._look()
        return tells + self._retake()

    def _take(self, sender: int, note: Note, payload: bytes) -> list[Tell]:
        if note.kind == "result":
            return self._take_result(note, payload)
        round = self.last_round.number + 1
        if note.round == round and self._shares is not None:
            if sender in self._shares:
                raise MalformedMessage(f"a second share of worker {sender} in round {round}")
            self._check(payload)
            self._shares[sender] = payload
            self._look()
            return []
        if note.round not in (round, round + 1):
            raise MalformedMessage(f"a share of round {note.round}; this worker is in round {round}")
        self._early.append((sender, note, payload))
        return []

    def mean(self, out: Vector) -> float:
        assert self._result is not None, "no round is done"
        total = float(self._result[self.length])
        if total:
            self._coder.divide(self._result[: self.length], total, out)
        return total

    def _room(self, size: int) -> Vector:
        return self._coder.room(size)

    def _put(self, target: Vector, source: Vector) -> None:
        self._coder.put(target, source)

    def _host(self, buffer: Vector) -> Vector:
        return self._coder.host(buffer)

    def _check(self, share: bytes) -> None:
        payload, numbers = self._split(share)
        if not np.isfinite(numbers).all() or numbers[0] < 0.0:
            raise MalformedMessage(f"a share with the numbers {numbers.tolist()}")
        self._coder.check(payload, self.length)

    def _look(self) -> None:
        """Sum the shares, when all members' are here."""
        members, shares = self.membership.members, self._shares
        assert shares is not None
        if len(shares) < len(members):
            return
        payloads, numbers = zip(*(self._split(shares[member]) for member in members), strict=True)
        buffer = self._buffer(self.last_round.number + 1)
        self._sum(payloads, [float(one[0]) for one in numbers], buffer[: self.length])
        sums = np.zeros_like(numbers[0])
        for one in numbers:
            sums += one
        self._put(buffer[self.length :], sums)
        self._complete(buffer)

    def _sum(self, payloads: Sequence[memoryview], weights: Sequence[float], out: Vector) -> None:
        self._coder.total(payloads, weights, out)

    def _complete(self, buffer: Vector) -> None:
        self._shares, self._share = None, b""
        super()._complete(buffer)

    def _split(self, share: bytes | memoryview) -> tuple[memoryview, Vector]:
        assert self._contribution is not None
        nbytes = NUMBER_NBYTES * len(self._contribution.numbers)
        if len(share) < nbytes:
            raise MalformedMessage(f"a share of {len(share)} bytes; its numbers alone have {nbytes}")
        end = len(share) - nbytes
        return memoryview(share)[:end], np.frombuffer(share[end:], np.float32)

"""How many places of which pass are to be set aside for whom: by speed, for two minutes, the earliest passes first. Pure.

Of the passes that workers have come to, three quarters of what is left; the rest is dealt in leases, so that all end
together. A script that asks for its passes one by one says nothing of the next, but most likely it is like this one. Of
such passes everything is set aside: workers go through them without a supervisor, and nobody could deal the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from taut.config import PATIENCE_S
from taut.core.messages import LeaseRequest

FRACTION = 0.75  # of what is left
END_S = 2.0  # before an end that all wait for nothing is set aside: to call it in again would take a part of that
LEAST_BATCHES = 2  # fewer are not worth a message
PASSES_AHEAD = 8


@dataclass(frozen=True, slots=True)
class ReserveQuota:
    """``stretch``: by rank, from where to where its speed reaches when all are laid end to end, in places a second;
    ``left``: places of each pass that are neither in a lease nor trained on; ``reached``: the last pass that somebody has
    asked for; ``alike``: all passes so far had one length."""

    rates: Mapping[int, float]
    stretch: Mapping[int, tuple[float, float]]
    total: float
    left: Mapping[int, int]
    reached: int
    alike: bool

    @classmethod
    def of(
        cls,
        asks: Mapping[int, LeaseRequest],
        rates: Mapping[int, float],
        left: Mapping[int, int],
        lengths: Collection[int],
    ) -> ReserveQuota:
        """Among those who ask; ``lengths``: of all passes that were begun.

        >>> ask = LeaseRequest(0, 100, 10, last=False, until=1)
        >>> sharing = ReserveQuota.of({0: ask, 1: ask}, {0: 3.0, 1: 1.0}, {0: 100}, [100])
        >>> sharing.shares(0, ask), sharing.shares(1, ask)[1]
        ({0: 50, 1: 80, 2: 80, 3: 80, 4: 70, 5: 0, 6: 0, 7: 0, 8: 0}, 20)
        """
        total, stretch = 0.0, {}
        for rank in asks:
            stretch[rank] = (total, total + rates.get(rank, 0.0))
            total = stretch[rank][1]
        reached = max((final(ask) for ask in asks.values()), default=-1)
        return cls(rates, stretch, total, left, reached, len(lengths) < 2)

    def shares(self, rank: int, ask: LeaseRequest, alone: bool = False) -> dict[int, int]:
        """How many places of each pass this worker should have set aside. ``alone``: it is in the run."""
        last = final(ask)
        first = next((epoch for epoch in sorted(self.left) if self.left[epoch] and ask.epoch <= epoch), ask.epoch)
        goes_on = not ask.last and self.alike
        ahead = range(first, (first + PASSES_AHEAD if goes_on else min(last, first + PASSES_AHEAD)) + 1)
        if alone:
            return {epoch: self._left(epoch, ask) for epoch in ahead}
        if not goes_on and self._ends(first, last, ask):
            return {}
        wanted = self.rates[rank] * PATIENCE_S
        shares: dict[int, int] = {}
        for epoch in ahead:
            share = self._of_next(rank, epoch, ask) if epoch > self.reached else self._of_this(rank, epoch, ask, goes_on)
            shares[epoch] = min(share, int(wanted) // ask.batch * ask.batch)
            wanted -= shares[epoch]
        return shares

    def _left(self, epoch: int, ask: LeaseRequest) -> int:
        return self.left.get(epoch, ask.length)

    def _ends(self, first: int, last: int, ask: LeaseRequest) -> bool:
        """Whether all that is left of these passes is trained on in a moment."""
        known = [self.left[epoch] for epoch in self.left if first <= epoch <= last]
        return sum(known) + (last + 1 - first - len(known)) * ask.length < self.total * END_S

    def _of_this(self, rank: int, epoch: int, ask: LeaseRequest, goes_on: bool) -> int:
        """Of a pass that somebody is in. Whoever asks for passes one by one waits at the end of each for the others."""
        if goes_on and self._left(epoch, ask) < self.total * END_S:
            return 0
        places = int(FRACTION * self._left(epoch, ask) * self.rates[rank] / self.total) // ask.batch * ask.batch
        return places if places >= LEAST_BATCHES * ask.batch else 0

    def _of_next(self, rank: int, epoch: int, ask: LeaseRequest) -> int:
        """Of a pass that nobody has come to: in whole batches, so that the shares of all are the whole."""
        batches = -(-self._left(epoch, ask) // ask.batch)
        begin, end = (round(batches * speed / self.total) for speed in self.stretch[rank])
        return ask.batch * (end - begin)


def final(ask: LeaseRequest) -> int:
    """The last pass that it names.

    >>> final(LeaseRequest(3, 100, 10, last=True, until=5)), final(LeaseRequest(3, 100, 10, last=True))
    (4, 3)
    """
    return max(ask.epoch, ask.until - 1)

"""Quotas of the reserves: samples per pass and worker, by speed, for two minutes, the earliest passes first. Pure.

Of the passes that workers have reached, three quarters of what is left are reserved; the rest is leased, so that all end
together. A script that asks for its passes one by one does not announce the next, but most likely it is like this one.
Such passes are reserved whole: workers go through them without a supervisor, which could not lease the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from taut.config import PATIENCE_S
from taut.core.messages import LeaseRequest

FRACTION = 0.75  # of what is left
END_S = 2.0  # nothing is reserved this close to an end that all wait for: to call it in takes time
LEAST_BATCHES = 2  # fewer are not worth a message
PASSES_AHEAD = 8


class ReserveQuota(Struct, frozen=True):
    """Quotas of all workers. ``stretch``: by rank, the interval of its speed when all are laid end to end, in samples
    per second; ``left``: by pass, samples that are neither leased nor trained on; ``reached``: the last pass that any
    worker has asked for; ``alike``: all passes so far had one length."""

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
        """Return the quotas of the workers that ask; ``lengths``: of all passes that were begun.

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
        """Return the number of samples of each pass to reserve for this worker. ``alone``: it is the only worker."""
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
        """Return whether the rest of these passes will be trained on in a moment."""
        known = [self.left[epoch] for epoch in self.left if first <= epoch <= last]
        return sum(known) + (last + 1 - first - len(known)) * ask.length < self.total * END_S

    def _of_this(self, rank: int, epoch: int, ask: LeaseRequest, goes_on: bool) -> int:
        """Return the quota in a pass that some worker has reached. Workers that ask for passes one by one wait at the
        end of each for the others."""
        if goes_on and self._left(epoch, ask) < self.total * END_S:
            return 0
        samples = int(FRACTION * self._left(epoch, ask) * self.rates[rank] / self.total) // ask.batch * ask.batch
        return samples if samples >= LEAST_BATCHES * ask.batch else 0

    def _of_next(self, rank: int, epoch: int, ask: LeaseRequest) -> int:
        """Return the quota in a pass that no worker has reached: in whole batches, so that quotas sum to the whole."""
        batches = -(-self._left(epoch, ask) // ask.batch)
        begin, end = (round(batches * speed / self.total) for speed in self.stretch[rank])
        return ask.batch * (end - begin)


def final(ask: LeaseRequest) -> int:
    """Return the last pass that a request names.

    >>> final(LeaseRequest(3, 100, 10, last=True, until=5)), final(LeaseRequest(3, 100, 10, last=True))
    (4, 3)
    """
    return max(ask.epoch, ask.until - 1)

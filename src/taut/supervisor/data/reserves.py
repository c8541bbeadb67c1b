"""Reserves: samples set aside for single workers, which take them without asking while the supervisor is away or slow.

Three quarters of what is left of a pass are reserved, by each worker's speed, but no more than it needs for
``PATIENCE_S``; the rest is leased. A single worker gets all that is left, which it takes in order. ``reserve_quota.py``
computes the quotas. A reserve is given to another worker only after its owner has said that it saw the smaller offer
(``ReserveSeen``), and all that it said before has arrived. So no sample is ever with two workers in the run, whatever
messages are lost or late. Pure; lease_server.py drives it.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from taut.core.messages import LeaseRequest, Reserve
from taut.core.sample_ranges import Span, count, joined, without
from taut.supervisor.data.leases import Leases
from taut.supervisor.data.reserve_quota import LEAST_BATCHES, ReserveQuota

MOST_SPANS = 32
MOST_UNSEEN = 64  # offers to one worker: one that answers none of so many is being evicted anyway
LATE_S = 0.3  # workers with other data do not wait longer for an answer


class Offer(Struct):
    """The reserve that a worker was told, in passes of ``length`` samples; ``unseen``: versions that it has not
    answered, each with its spans; ``told_s``: when it was told the first of them."""

    length: int
    spans: list[Span] = []
    unseen: dict[int, list[Span]] = {}
    told_s: float = 0.0

    def late(self, now: float) -> bool:
        return bool(self.unseen) and now - self.told_s > LATE_S


def trimmed(spans: list[Span], epoch: int, samples: int, batch: int) -> list[Span]:
    """Return ``spans`` without the first indices of that pass, so that about ``samples`` of it stay, cut between batches.

    >>> trimmed([(0, 20, 100), (1, 0, 50)], epoch=0, samples=35, batch=10)
    [(0, 70, 100), (1, 0, 50)]
    """
    surplus = count(span for span in spans if span[0] == epoch) - samples
    for span in [one for one in spans if one[0] == epoch]:
        cut = min(span[2], -(-(span[1] + max(0, surplus)) // batch) * batch)
        if surplus > 0:
            spans = without(spans, (epoch, span[1], cut))
            surplus -= cut - span[1]
    return spans


class Reserves(Struct):
    """The reserves of all workers. ``term``: of the supervisor. ``doubtful``: workers whose messages were lost; their
    ``ReserveSeen`` is ignored until they have sent their state."""

    leases: Leases
    term: int = 0
    offers: dict[int, Offer] = {}
    doubtful: set[int] = set()
    _versions: int = 0

    def balance(
        self, asks: Mapping[int, LeaseRequest], rates: Mapping[int, float], now: float, alone: bool = False
    ) -> dict[int, Reserve]:
        """Return the new offers, by the last requests of training workers and their speeds in samples per second.
        ``alone``: there is one worker in the run."""
        told: dict[int, Reserve] = {}
        lengths = {each.length for each in self.leases.passes.values() if each.begun}
        sharing = ReserveQuota.of(asks, rates, self._left(), lengths)
        for rank, ask in asks.items():
            if rank not in self.doubtful and rates.get(rank, 0.0) > 0.0:
                offer = self.offers.setdefault(rank, Offer(ask.length))
                if not offer.spans:
                    offer.length = ask.length
                shares = sharing.shares(rank, ask, alone) if offer.length == ask.length else {}
                spans = self._adjusted(rank, offer, shares, ask.batch, sharing.reached)
                again = offer.late(now) and len(offer.unseen) < MOST_UNSEEN  # the offer or its answer may have been lost
                if spans != offer.spans or again:
                    told[rank] = self._tell(offer, spans, now)
        return told

    def call_in(self, final: int, now: float, batch: int) -> dict[int, Reserve]:
        """Return offers, smaller by half, to workers with reserves in passes up to ``final``: another waits for them."""
        told: dict[int, Reserve] = {}
        for rank, offer in self.offers.items():
            if offer.unseen or rank in self.doubtful:
                continue
            spans = offer.spans
            for epoch in {span[0] for span in spans if span[0] <= final}:
                samples = count(span for span in spans if span[0] == epoch) // 2
                spans = trimmed(spans, epoch, samples if samples >= LEAST_BATCHES * batch else 0, batch)
            if spans != offer.spans:
                told[rank] = self._tell(offer, spans, now)
        return told

    def before(self, epoch: int) -> bool:
        """Return whether earlier passes have reserves. These come first: passes are trained on one after the other."""
        return any(span[0] < epoch for spans in self.leases.reserved.values() for span in spans)

    def outstanding(self, final: int, now: float, patient: bool) -> bool:
        """Return whether passes up to ``final`` have reserves; unless ``patient``, with workers that answer in time."""
        for rank, spans in self.leases.reserved.items():
            offer = self.offers.get(rank)
            late = offer is None or offer.late(now)
            if (patient or not late) and any(span[0] <= final for span in spans):
                return True
        return False

    def taken(self, rank: int, span: Span) -> None:
        """Note that the worker took this span of its reserve."""
        if rank in self.offers:
            self.offers[rank].spans = without(self.offers[rank].spans, span)

    def seen(self, rank: int, version: int) -> int:
        """Note that the worker has seen this version, and all its earlier messages have arrived. Return the number of
        samples that are free now."""
        offer = self.offers.get(rank)
        if offer is None or version not in offer.unseen or rank in self.doubtful:
            return 0
        may_take = [span for later, spans in offer.unseen.items() if later >= version for span in spans]
        offer.unseen = {later: spans for later, spans in offer.unseen.items() if later > version}
        return self.leases.give_back(rank, [*may_take, *offer.spans])

    def renewed(self, rank: int, now: float) -> Reserve | None:
        """Offer the worker its reserve again, after it has sent its state."""
        self.doubtful.discard(rank)
        spans = self.leases.reserved.get(rank, [])
        if not spans:
            self.offers.pop(rank, None)
            return None
        length = self.leases.passes[spans[0][0]].length
        offer = self.offers[rank] = Offer(length)
        return self._tell(offer, [span for span in spans if self.leases.passes[span[0]].length == length], now)

    def gone(self, rank: int) -> None:
        self.offers.pop(rank, None)
        self.doubtful.discard(rank)

    def _tell(self, offer: Offer, spans: list[Span], now: float) -> Reserve:
        self._versions += 1
        version = (self.term << 32) + self._versions
        offer.told_s = offer.told_s if offer.unseen else now
        offer.spans = offer.unseen[version] = spans
        return Reserve(version, offer.length, spans)

    def _left(self) -> dict[int, int]:
        """Return by pass the samples that are neither leased nor trained on."""
        left = {epoch: each.left for epoch, each in self.leases.passes.items() if each.done < each.length}
        for spans in [self.leases.returned, *self.leases.reserved.values()]:
            for epoch, lo, hi in spans:
                left[epoch] = left.get(epoch, 0) + hi - lo
        return left

    def _adjusted(self, rank: int, offer: Offer, shares: Mapping[int, int], batch: int, reached: int) -> list[Span]:
        """Return ``offer.spans``, smaller or larger if they are far from the shares: by an eighth or a batch in
        passes that no worker has reached, where it costs nothing; by a third in others."""
        spans = offer.spans
        for epoch in sorted({span[0] for span in spans} | set(shares)):
            mine, share = count(span for span in spans if span[0] == epoch), shares.get(epoch, 0)
            less, more = 3 * mine > 4 * share, 3 * mine < 2 * share
            if epoch > reached and mine:
                off = max(batch, share // 8)
                less, more = mine > share + off, mine < share - off
            if less:
                spans = trimmed(spans, epoch, share, batch)
            elif more and len(spans) < MOST_SPANS:
                spans = joined([*spans, *self.leases.set_aside(rank, epoch, share - mine, offer.length, batch)])
        return spans

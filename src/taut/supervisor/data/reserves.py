"""Places set aside for single workers, to be taken without asking: for when the supervisor is away, or slow.

Of what is left of a pass, three quarters are shared out like this, by how fast each worker is, but no more than it
needs for ``PATIENCE_S``; the rest is dealt in leases. For a worker that is alone it is all that is left, which it takes
place after place. ``reserve_quota.py`` says how much of which pass is for whom. What was set aside for one worker is
given to no other before that worker has said that it saw the smaller offer (``ReserveSeen``), and everything it said
before that has come. So no place is ever in the hands of two workers that are in the run, whatever is lost or late. Pure;
lease_server.py drives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from taut.core.messages import LeaseRequest, Reserve
from taut.core.sample_ranges import Span, count, joined, without
from taut.supervisor.data.leases import Leases
from taut.supervisor.data.reserve_quota import LEAST_BATCHES, ReserveQuota

MOST_SPANS = 32
MOST_UNSEEN = 64  # offers to one worker: one that answers none of so many is being given up anyway
LATE_S = 0.3  # an answer that takes longer is not waited for by those who have other data


@dataclass(slots=True)
class Offer:
    """What a worker was told: these places of passes of ``length`` places; ``unseen``: the versions that it has not
    answered, each with its places; ``told_s``: when it was told the first of them."""

    length: int
    spans: list[Span] = field(default_factory=list)
    unseen: dict[int, list[Span]] = field(default_factory=dict)
    told_s: float = 0.0

    @property
    def pending(self) -> bool:
        return bool(self.unseen)

    def late(self, now: float) -> bool:
        return self.pending and now - self.told_s > LATE_S


def trimmed(spans: list[Span], epoch: int, places: int, batch: int) -> list[Span]:
    """``spans`` without the first places of that pass, so that about ``places`` of it stay, cut between batches.

    >>> trimmed([(0, 20, 100), (1, 0, 50)], epoch=0, places=35, batch=10)
    [(0, 70, 100), (1, 0, 50)]
    """
    surplus = count(span for span in spans if span[0] == epoch) - places
    for span in [one for one in spans if one[0] == epoch]:
        cut = min(span[2], -(-(span[1] + max(0, surplus)) // batch) * batch)
        if surplus > 0:
            spans = without(spans, (epoch, span[1], cut))
            surplus -= cut - span[1]
    return spans


@dataclass(slots=True)
class Reserves:
    """``term``: of the supervisor's lives. ``doubtful``: something that they said was lost, so what they say of a version
    is not believed before they have said where they stand."""

    leases: Leases
    term: int = 0
    offers: dict[int, Offer] = field(default_factory=dict)
    doubtful: set[int] = field(default_factory=set)
    _versions: int = 0

    def balance(
        self, asks: Mapping[int, LeaseRequest], rates: Mapping[int, float], now: float, alone: bool = False
    ) -> dict[int, Reserve]:
        """By the last requests of those who train, and their speeds in places a second: what to tell whom. ``alone``:
        there is one worker in the run."""
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
                again = offer.late(now) and len(offer.unseen) < MOST_UNSEEN  # the offer or its answer may be lost
                if spans != offer.spans or again:
                    told[rank] = self._tell(offer, spans, now)
        return told

    def call_in(self, final: int, now: float, batch: int) -> dict[int, Reserve]:
        """Somebody waits for places of passes up to ``final``: all who have some set aside give up a half."""
        told: dict[int, Reserve] = {}
        for rank, offer in self.offers.items():
            if offer.pending or rank in self.doubtful:
                continue
            spans = offer.spans
            for epoch in {span[0] for span in spans if span[0] <= final}:
                places = count(span for span in spans if span[0] == epoch) // 2
                spans = trimmed(spans, epoch, places if places >= LEAST_BATCHES * batch else 0, batch)
            if spans != offer.spans:
                told[rank] = self._tell(offer, spans, now)
        return told

    def before(self, epoch: int) -> bool:
        """Whether places of earlier passes are set aside. They come first: passes are trained on one after the other."""
        return any(span[0] < epoch for spans in self.leases.reserved.values() for span in spans)

    def outstanding(self, final: int, now: float, patient: bool) -> bool:
        """Whether places of passes up to ``final`` are set aside; not ``patient``: for somebody who answers in time."""
        for rank, spans in self.leases.reserved.items():
            offer = self.offers.get(rank)
            late = offer is None or offer.late(now)
            if (patient or not late) and any(span[0] <= final for span in spans):
                return True
        return False

    def taken(self, rank: int, span: Span) -> None:
        """The worker took these places, of what was set aside for it."""
        if rank in self.offers:
            self.offers[rank].spans = without(self.offers[rank].spans, span)

    def seen(self, rank: int, version: int) -> int:
        """The worker has seen this version, and everything it said before has come; how many places are free by that."""
        offer = self.offers.get(rank)
        if offer is None or version not in offer.unseen or rank in self.doubtful:
            return 0
        may_take = [span for later, spans in offer.unseen.items() if later >= version for span in spans]
        offer.unseen = {later: spans for later, spans in offer.unseen.items() if later > version}
        return self.leases.give_back(rank, [*may_take, *offer.spans])

    def renewed(self, rank: int, now: float) -> Reserve | None:
        """The worker has said where it stands: what is its own, told again."""
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

    # -------------------------------------------------------------------------------------------------------------

    def _tell(self, offer: Offer, spans: list[Span], now: float) -> Reserve:
        self._versions += 1
        version = (self.term << 32) + self._versions
        offer.told_s = offer.told_s if offer.pending else now
        offer.spans = offer.unseen[version] = spans
        return Reserve(version, offer.length, spans)

    def _left(self) -> dict[int, int]:
        """Places of each pass that are neither in a lease nor trained on."""
        left = {epoch: each.left for epoch, each in self.leases.passes.items() if each.done < each.length}
        for spans in [self.leases.returned, *self.leases.reserved.values()]:
            for epoch, lo, hi in spans:
                left[epoch] = left.get(epoch, 0) + hi - lo
        return left

    def _adjusted(self, rank: int, offer: Offer, shares: Mapping[int, int], batch: int, reached: int) -> list[Span]:
        """``offer.spans``, less or more, where they are far from the shares: of passes that nobody has come to, where it
        costs nobody anything, an eighth or a batch; of others a third."""
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

"""Data leases: who trains on which places of a pass over the data. Each place is dealt exactly once while
nobody dies.

A pass is dealt in chunks that shrink towards its end (guided self-scheduling, Polychronopoulos and Kuck
1987), so that fast workers get more and all end at about the same time. What a dead worker held is dealt
again, first of all. From the end of the passes, places are set aside for single workers (``reserves.py``), to be taken
without asking.

Each place of a pass is at any time in one of these: not dealt, returned, set aside for one worker, in one open lease, or
trained on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from taut.core.messages import Lease
from taut.core.spans import Span, common, count, joined, without
from taut.errors import Misuse
from taut.supervisor.ahead import Dealt, Entry, SetAside, Trained
from taut.supervisor.passes import Pass, chunk

HOLD: Final = "hold"


@dataclass(slots=True)
class Leases:
    """All passes of a run.

    Example: two workers share one pass of 10 samples, and the first of them dies.

    >>> leases = Leases()
    >>> first = leases.request(0, epoch=0, length=10, batch=5, live_workers=2)
    >>> second = leases.request(1, epoch=0, length=10, batch=5, live_workers=2, last=True)
    >>> leases.done(1, [second.lease])
    5
    >>> leases.request(1, epoch=0, length=10, batch=5, live_workers=2, last=True)
    'hold'
    >>> leases.release(0)
    5
    >>> again = leases.request(1, epoch=0, length=10, batch=5, live_workers=1, last=True)
    >>> (again.lo, again.hi) == (first.lo, first.hi), leases.samples_again
    (True, 5)
    """

    passes: dict[int, Pass] = field(default_factory=dict)
    open: dict[int, tuple[int, Lease]] = field(default_factory=dict)  # lease id -> (rank, lease)
    returned: list[Span] = field(default_factory=list)  # to be dealt again
    reserved: dict[int, list[Span]] = field(default_factory=dict)  # set aside, by rank
    samples_again: int = 0  # dealt again: perhaps trained twice
    issued: int = 0
    untouched: int = 0  # of those to be dealt again, so many that nobody began
    log: list[Entry] = field(default_factory=list)  # to be written down before anybody is told

    @classmethod
    def continued(cls, lengths: Mapping[int, int], undone: Iterable[Span]) -> Leases:
        """The passes of a run that goes on from a checkpoint: ``undone`` is what is left of those begun.

        >>> leases = Leases.continued({0: 10, 1: 10}, [(0, 2, 4), (1, 5, 10)])
        >>> leases.returned, leases.passes[1].dealt, leases.samples_undone
        ([(0, 2, 4)], 5, 7)
        """
        leases = cls({epoch: Pass(length, length, length, begun=True) for epoch, length in lengths.items()})
        for epoch, lo, hi in joined(undone):
            current = leases.passes[epoch]
            current.done -= hi - lo
            if hi == current.length:
                current.dealt = lo  # so that who is alone goes on in the very same order
            else:
                leases.returned.append((epoch, lo, hi))
        leases.untouched = count(leases.returned)
        return leases

    def undone(self, reached: Mapping[int, int], later: Iterable[Span]) -> list[Span]:
        """What a checkpoint does not contain of the passes begun: all that is not trained on now, from ``reached`` (by
        lease) where a worker came that far, and what was trained on ``later``."""
        spans = [*later, *self.returned, *(span for spans in self.reserved.values() for span in spans)]
        spans += [(epoch, each.dealt, each.end) for epoch, each in self.passes.items()]
        spans += [(one.epoch, reached.get(number, one.lo), one.hi) for number, (_, one) in self.open.items()]
        return joined(span for span in spans if self.passes[span[0]].begun)

    def request(
        self,
        rank: int,
        epoch: int,
        length: int,
        *,
        batch: int,
        live_workers: int,
        last: bool = False,
        least: int = 1,
        after: int = 0,
        final: int = -1,
    ) -> Lease | Literal["hold"] | None:
        """A lease, None when the passes up to ``final`` (if that is later than ``epoch``) are dealt out, or HOLD: ask
        again after the next `done` or `release`.

        What was returned comes first, whatever its epoch, unless that is still to come. A ``last`` request is held while
        others still have open leases, so that a late death leaves nothing undone. Raises Misuse when ``length`` is not
        the pass's.
        """
        current = self.passes.get(epoch)
        if current is not None and current.length != length:
            raise Misuse(
                f"a data set of {length} samples in epoch {epoch}",
                f"{current.length} samples, as the first worker of this epoch has",
                "give every worker the same data set",
            )
        if current is None:
            current = self.passes[epoch] = Pass(length)
        current.begun = True
        final = max(epoch, final)
        again = next((span for span in self.returned if span[0] <= final or self.passes[span[0]].begun), None)
        if again is not None:
            return self._deal_again(rank, again, batch, live_workers)
        if current.left:
            lo = current.dealt
            current.dealt += chunk(current.left, batch, live_workers, least, after)
            return self._issue(rank, epoch, lo, current.dealt)
        if last and any(holder != rank for holder, _ in self.open.values()):
            return HOLD
        return None

    def earliest(self, epoch: int, final: int) -> int:
        """The first pass from ``epoch`` to ``final`` with something left to deal; ``final`` if there is none.

        >>> leases = Leases({0: Pass(10, dealt=10)})
        >>> leases.earliest(0, 0), leases.earliest(0, 3)
        (0, 1)
        """
        while epoch < final and epoch in self.passes and not self.passes[epoch].left:
            epoch += 1
        return epoch

    def done(self, rank: int, ids: Iterable[int]) -> int:
        """These leases were trained on; how many samples that are. Ids that ``rank`` does not hold are
        passed over."""
        samples, known = 0, []
        for lease_id in ids:
            holder, lease = self.open.get(lease_id, (None, None))
            if lease is None or holder != rank:
                continue
            del self.open[lease_id]
            known.append(lease_id)
            self.passes[lease.epoch].done += lease.hi - lease.lo
            samples += lease.hi - lease.lo
        if known:
            self.log.append(Trained(rank, known))
        return samples

    def release(self, rank: int, doubt: int = 0) -> int:
        """``rank`` is gone or stopped: what it held is to be dealt again; how many samples that are. Of what was set
        aside for it, it may have begun ``doubt`` places without a word that came; nobody has begun the rest."""
        mine = [lease for holder, lease in self.open.values() if holder == rank]
        for lease in mine:
            del self.open[lease.lease]
            self.returned.append((lease.epoch, lease.lo, lease.hi))
        spans = self.reserved.pop(rank, [])
        self.untouched += max(0, count(spans) - doubt)
        self.returned = joined([*self.returned, *spans])
        return sum(lease.hi - lease.lo for lease in mine) + min(doubt, count(spans))

    def take_back(self, lost: Iterable[Lease], certain: bool) -> int:
        """These leases did not come to whom they were dealt; how many samples that are. ``certain``: nor will they."""
        spans = [(lease.epoch, lease.lo, lease.hi) for lease in lost if self.open.pop(lease.lease, None) is not None]
        if certain:
            self.untouched += count(spans)
        self.returned = joined([*self.returned, *spans])
        return count(spans)

    # ------------------------------------------------------------------------------------------- what is set aside

    def set_aside(self, rank: int, epoch: int, places: int, length: int, batch: int) -> Span | None:
        """For ``rank`` alone: about so many of the last places of the pass that are not dealt yet, in whole batches.

        >>> leases = Leases(); leases.set_aside(3, 0, 25, length=100, batch=10)
        (0, 80, 100)
        """
        current = self.passes.setdefault(epoch, Pass(length))
        lo, hi = max(current.dealt, -(-(current.end - places) // batch) * batch), current.end
        if current.length != length or lo >= hi:
            return None
        current.end = lo
        self.reserved[rank] = joined([*self.reserved.get(rank, []), (epoch, lo, hi)])
        self.log.append(SetAside(rank, [(epoch, lo, hi)], length))
        return epoch, lo, hi

    def give_back(self, rank: int, kept: Iterable[Span]) -> int:
        """Of what was set aside for ``rank``, it gives up all but ``kept``; how many places that are."""
        spans = self.reserved.get(rank, [])
        for span in kept:
            spans = without(spans, span)
        for span in spans:
            self.reserved[rank] = without(self.reserved[rank], span)
        self.spare(spans)
        return count(spans)

    def taken(self, rank: int, lease: Lease, length: int) -> bool:
        """``rank`` took this lease from what was set aside for it. False: that is not so (any more)."""
        span = (lease.epoch, lease.lo, lease.hi)
        if count(common(self.reserved.get(rank, []), span)) != lease.hi - lease.lo or lease.lo >= lease.hi:
            return False
        if lease.lease in self.open or self.passes[lease.epoch].length != length:
            return False
        self.reserved[rank] = without(self.reserved[rank], span)
        self.hold(rank, lease, length)
        return True

    # ------------------------------------------------------------------------------------------------------- figures

    @property
    def samples_undone(self) -> int:
        """Samples of the passes begun so far that nobody reported as trained."""
        return sum(each.length - each.done for each in self.passes.values() if each.begun)

    def progress(self) -> tuple[int, int, int]:
        """(epoch, done, length) of the earliest pass that is not complete, else of the latest; zeros before
        the first."""
        begun = {epoch: each for epoch, each in self.passes.items() if each.begun}
        if not begun:
            return 0, 0, 0
        incomplete = [epoch for epoch, each in begun.items() if each.done < each.length]
        epoch = min(incomplete) if incomplete else max(begun)
        return epoch, begun[epoch].done, begun[epoch].length

    # ------------------------------------------------------------------------------------------------------- dealing

    def _deal_again(self, rank: int, span: Span, batch: int, live_workers: int) -> Lease:
        epoch, lo, hi = span
        # cut it by what is left of its pass altogether, so that the end of the last pass is shared out evenly
        left = self.passes[epoch].left + count(other for other in self.returned if other[0] == epoch)
        middle = min(hi, lo + chunk(left, batch, live_workers))
        self.returned = without(self.returned, (epoch, lo, middle))
        self.count_again(middle - lo)
        return self._issue(rank, epoch, lo, middle)

    def _issue(self, rank: int, epoch: int, lo: int, hi: int) -> Lease:
        lease = Lease(lease=self.issued, epoch=epoch, lo=lo, hi=hi)
        self.issued += 1
        self.hold(rank, lease, self.passes[epoch].length)
        return lease

    # ------------------------------------------------------------------------------------------- places change hands

    def hold(self, rank: int, lease: Lease, length: int) -> None:
        """``rank`` has this lease from now on."""
        self.passes[lease.epoch].begun = True
        self.open[lease.lease] = (rank, lease)
        self.log.append(Dealt(rank, lease, length))

    def count_again(self, places: int) -> None:
        """So many that had been returned are dealt."""
        fresh = min(self.untouched, places)
        self.untouched -= fresh
        self.samples_again += places - fresh

    def spare(self, spans: Iterable[Span]) -> None:
        """To be dealt again, though nobody has begun them."""
        spans = list(spans)
        self.untouched += count(spans)
        self.returned = joined([*self.returned, *spans])

"""Data leases: which worker trains on which samples of a pass. Each sample is leased exactly once while no worker dies.

A pass is leased in chunks that shrink towards its end (guided self-scheduling, Polychronopoulos and Kuck 1987), so that
fast workers get more and all end at about the same time. Leases of a dead worker are given to others first of all. From
the end of the passes, samples are reserved for single workers (``reserves.py``), which take them without asking.

Each index of a pass is at any time in one of these: not leased, returned, reserved for one worker, in one open lease, or
trained on.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final, Literal

from msgspec import Struct

from taut.core.messages import Lease
from taut.core.sample_ranges import Span, beyond, common, count, joined, last, without
from taut.errors import Misuse
from taut.supervisor.data.lease_wal import Dealt, Entry, Restarted, SetAside, Trained
from taut.supervisor.data.passes import Pass, chunk
from taut.supervisor.data.released import Released

HOLD: Final = "hold"


class Leases(Struct):
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

    passes: dict[int, Pass] = {}
    open: dict[int, tuple[int, Lease]] = {}  # lease id -> (rank, lease)
    returned: list[Span] = []  # to be leased again
    reserved: dict[int, list[Span]] = {}  # reserves, by rank
    samples_again: int = 0  # leased again: perhaps trained twice
    issued: int = 0
    untouched: list[Span] = []  # of those returned, the ones that no worker has begun
    log: list[Entry] = []  # to be stored before any worker is told
    released: dict[int, Released] = {}  # by rank, of workers that are gone

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
        first: int | None = None,
        final: int = -1,
    ) -> Lease | Literal["hold"] | None:
        """Return a lease; None if the passes up to ``final`` (if later than ``epoch``) are used up; or HOLD: ask again
        after the next `done` or `release`.

        Returned samples come first, of any pass that is not still to come or of another data set. A ``last`` request is
        held while others have open leases of its passes (``first``, by default ``epoch``, to ``final``), so that a late
        death leaves nothing undone. Leases of other passes are not waited for: their holders may wait themselves, in
        another loop. Raises Misuse if ``length`` is not the pass's.
        """
        self.fit(epoch, length)
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
        again = next((span for span in self.returned if self._due(span[0], final, length)), None)
        if again is not None:
            return self._deal_again(rank, again, batch, live_workers)
        if current.left:
            lo = current.dealt
            current.dealt += chunk(current.left, batch, live_workers, least, after)
            return self._issue(rank, epoch, lo, current.dealt)
        passes = range(epoch if first is None else first, final + 1)
        if last and any(holder != rank and lease.epoch in passes for holder, lease in self.open.values()):
            return HOLD
        return None

    def _due(self, epoch: int, final: int, length: int) -> bool:
        """Return whether a request for passes up to ``final`` may get returned samples of this pass."""
        its = self.passes[epoch]
        return its.length == length and (epoch <= final or its.begun)

    def earliest(self, epoch: int, final: int, length: int) -> int:
        """Return the first pass from ``epoch`` to ``final`` with samples left to lease; ``final`` if there is none.

        >>> leases = Leases({0: Pass(10, dealt=10)})
        >>> leases.earliest(0, 0, 10), leases.earliest(0, 3, 10)
        (0, 1)
        """
        while epoch < final and epoch in self.passes and not self.passes[epoch].left:
            self.fit(epoch, length)
            if epoch in self.passes:
                epoch += 1
        return epoch

    def fit(self, epoch: int, length: int) -> None:
        """Fix the length of a pass. A pass that was only reserved, with the length of those before, is forgotten if
        its length differs.

        >>> leases = Leases(); _ = leases.set_aside(3, 0, 25, length=100, batch=10)
        >>> leases.fit(0, 100); 0 in leases.passes
        True
        >>> leases.fit(0, 60); 0 in leases.passes, leases.reserved
        (False, {3: []})
        """
        current = self.passes.get(epoch)
        if current is not None and not current.begun and current.length != length:
            self._forget(epoch)

    def restart(self, epoch: int, length: int) -> None:
        """Begin a pass anew, with the length that the workers agreed on; no worker has trained on it with this length."""
        self._forget(epoch)
        self.passes[epoch] = Pass(length)
        self.log.append(Restarted(epoch, length))

    def _forget(self, epoch: int) -> None:
        whole = (epoch, 0, self.passes.pop(epoch).length)
        self.returned, self.untouched = without(self.returned, whole), without(self.untouched, whole)
        self.reserved = {rank: without(spans, whole) for rank, spans in self.reserved.items()}
        self.open = {number: each for number, each in self.open.items() if each[1].epoch != epoch}
        self.released = {
            rank: Released(without(each.doubtful, whole), without(each.spared, whole))
            for rank, each in self.released.items()
        }

    def done(self, rank: int, ids: Iterable[int]) -> int:
        """Note these leases as trained, and return the number of samples. Ids that ``rank`` does not hold are ignored."""
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

    def release(self, rank: int, doubt: int = 0, begun: Container[int] | None = None) -> int:
        """Put back all leases and reserves of ``rank``, which is gone or done. Return the number of samples that it
        may have trained on. ``begun``: leases that it may have begun; None: any. ``doubt``: samples of its reserve
        that it may have begun without a report; no worker has begun the rest."""
        mine = {number: (one.epoch, one.lo, one.hi) for number, (holder, one) in self.open.items() if holder == rank}
        for number in mine:
            del self.open[number]
        unbegun = [span for number, span in mine.items() if begun is not None and number not in begun]
        spans = self.reserved.pop(rank, [])
        spared = [*unbegun, *beyond(spans, doubt)]  # a worker takes the first ones first
        self.untouched += spared
        doubtful = [*mine.values(), *spans]
        for span in spared:
            doubtful = without(doubtful, span)
        self.released[rank] = Released(doubtful, spared)
        self.returned = joined([*self.returned, *mine.values(), *spans])
        return count(mine.values()) - count(unbegun) + min(doubt, count(spans))

    def take_back(self, lost: Iterable[Lease], certain: bool) -> int:
        """Put back leases that did not reach their worker; count the samples. ``certain``: they cannot arrive later."""
        spans = [(lease.epoch, lease.lo, lease.hi) for lease in lost if self.open.pop(lease.lease, None) is not None]
        if certain:
            self.untouched += spans
        self.returned = joined([*self.returned, *spans])
        return count(spans)

    # Reserves.

    def set_aside(self, rank: int, epoch: int, samples: int, length: int, batch: int) -> list[Span]:
        """Reserve about so many of the pass's last samples that are not leased yet for ``rank`` alone, in whole
        batches. Of a pass that no worker has begun, also returned ones.

        >>> leases = Leases(); leases.set_aside(3, 0, 25, length=100, batch=10)
        [(0, 80, 100)]
        """
        current = self.passes.setdefault(epoch, Pass(length))
        if current.length != length:
            return []
        spans = last((epoch, current.dealt, current.end), samples, batch)
        current.end = spans[0][1] if spans else current.end
        for span in [] if current.begun else [one for one in self.untouched if one[0] == epoch]:
            spans += last(span, samples - count(spans), batch)
        for span in spans:
            self.returned, self.untouched = without(self.returned, span), without(self.untouched, span)
        if spans:
            self.reserved[rank] = joined([*self.reserved.get(rank, []), *spans])
            self.log.append(SetAside(rank, spans, length))
        return spans

    def give_back(self, rank: int, kept: Iterable[Span]) -> int:
        """Put back the reserve of ``rank`` except ``kept``. Return the number of samples."""
        spans = self.reserved.get(rank, [])
        for span in kept:
            spans = without(spans, span)
        for span in spans:
            self.reserved[rank] = without(self.reserved[rank], span)
        self.spare(spans)
        return count(spans)

    def taken(self, rank: int, lease: Lease) -> bool:
        """Note that ``rank`` took this lease from its reserve. Return False if it is not there (any more)."""
        span = (lease.epoch, lease.lo, lease.hi)
        if count(common(self.reserved.get(rank, []), span)) != lease.hi - lease.lo or lease.lo >= lease.hi:
            return False
        if lease.lease in self.open:
            return False
        self.reserved[rank] = without(self.reserved[rank], span)
        self.hold(rank, lease, self.passes[lease.epoch].length)
        return True

    # Figures.

    @property
    def samples_undone(self) -> int:
        """Return the samples of the passes begun so far that were not reported as trained."""
        return sum(each.length - each.done for each in self.passes.values() if each.begun)

    def progress(self) -> tuple[int, int, int]:
        """Return (epoch, done, length) of the earliest pass that is not complete, else of the latest; zeros before."""
        begun = {epoch: each for epoch, each in self.passes.items() if each.begun}
        if not begun:
            return 0, 0, 0
        incomplete = [epoch for epoch, each in begun.items() if each.done < each.length]
        epoch = min(incomplete) if incomplete else max(begun)
        return epoch, begun[epoch].done, begun[epoch].length

    @property
    def samples_trained(self) -> int:
        """Return the samples of all passes that were reported as trained."""
        return sum(each.done for each in self.passes.values())

    def samples_left(self, epochs: int) -> int:
        """Return the samples of the first ``epochs`` passes that were not reported as trained. A pass that is still
        to come counts as long as the latest.

        >>> Leases({0: Pass(10, done=10), 1: Pass(10, done=4)}).samples_left(3)
        16
        """
        if not self.passes:
            return 0
        known = [each.length - each.done for epoch, each in self.passes.items() if epoch < epochs]
        return sum(known) + (epochs - len(known)) * self.passes[max(self.passes)].length

    # Issuing.

    def _deal_again(self, rank: int, span: Span, batch: int, live_workers: int) -> Lease:
        epoch, lo, hi = span
        # a chunk of all that is left of its pass, so that the end of the last pass is shared evenly
        left = self.passes[epoch].left + count(other for other in self.returned if other[0] == epoch)
        middle = min(hi, lo + chunk(left, batch, live_workers))
        self.returned = without(self.returned, (epoch, lo, middle))
        self.count_again((epoch, lo, middle))
        return self._issue(rank, epoch, lo, middle)

    def _issue(self, rank: int, epoch: int, lo: int, hi: int) -> Lease:
        lease = Lease(lease=self.issued, epoch=epoch, lo=lo, hi=hi)
        self.issued += 1
        self.hold(rank, lease, self.passes[epoch].length)
        return lease

    def hold(self, rank: int, lease: Lease, length: int) -> None:
        """Note that ``rank`` has this lease."""
        self.passes[lease.epoch].begun = True
        self.open[lease.lease] = (rank, lease)
        self.log.append(Dealt(rank, lease, length))

    def count_again(self, span: Span) -> None:
        """Count returned samples that are leased again."""
        self.samples_again += span[2] - span[1] - count(common(self.untouched, span))
        self.untouched = without(self.untouched, span)

    def spare(self, spans: Iterable[Span]) -> None:
        """Put back samples that no worker has begun."""
        spans = list(spans)
        self.untouched = joined([*self.untouched, *spans])
        self.returned = joined([*self.returned, *spans])

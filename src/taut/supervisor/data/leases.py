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

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from taut.core.messages import Lease
from taut.core.sample_ranges import Span, beyond, common, count, joined, last, without
from taut.errors import Misuse
from taut.supervisor.data.lease_wal import Dealt, Entry, Restarted, SetAside, Trained
from taut.supervisor.data.passes import Pass, chunk
from taut.supervisor.data.released import Released

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
    untouched: list[Span] = field(default_factory=list)  # of those to be dealt again, what nobody has begun
    log: list[Entry] = field(default_factory=list)  # to be written down before anybody is told
    released: dict[int, Released] = field(default_factory=dict)  # by rank, of workers that are gone

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
        """A lease, None when the passes up to ``final`` (if that is later than ``epoch``) are dealt out, or HOLD: ask
        again after the next `done` or `release`.

        What was returned comes first, whatever its epoch, unless that is still to come, or is of another data set. A
        ``last`` request is held while others still have open leases of the passes that it is for (``first``, by default
        ``epoch``, to ``final``), so that a late death leaves nothing undone. Leases of other passes are not waited for:
        their holders may be waiting themselves, in another loop. Raises Misuse when ``length`` is not the pass's.
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
        """Whether who asks for passes up to ``final`` may be given what was returned of this one."""
        its = self.passes[epoch]
        return its.length == length and (epoch <= final or its.begun)

    def earliest(self, epoch: int, final: int, length: int) -> int:
        """The first pass from ``epoch`` to ``final`` with something left to deal; ``final`` if there is none.

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
        """This pass has so many places. One that was only set aside, since it was taken for one like those before, is
        forgotten where it has another length.

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
        """Begin a pass anew, with another length: workers agreed that it has this one. Nobody trained on it by that."""
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

    def release(self, rank: int, doubt: int = 0, begun: Container[int] | None = None) -> int:
        """``rank`` is gone or stopped: what it held is to be dealt again; on how many samples it may have trained.
        ``begun``: the leases that it may have begun; None: any. Of what was set aside for it, it may have begun ``doubt``
        places without a word that came; nobody has begun the rest."""
        mine = {number: (one.epoch, one.lo, one.hi) for number, (holder, one) in self.open.items() if holder == rank}
        for number in mine:
            del self.open[number]
        unbegun = [span for number, span in mine.items() if begun is not None and number not in begun]
        spans = self.reserved.pop(rank, [])
        spared = [*unbegun, *beyond(spans, doubt)]  # it takes the first ones first
        self.untouched += spared
        doubtful = [*mine.values(), *spans]
        for span in spared:
            doubtful = without(doubtful, span)
        self.released[rank] = Released(doubtful, spared)
        self.returned = joined([*self.returned, *mine.values(), *spans])
        return count(mine.values()) - count(unbegun) + min(doubt, count(spans))

    def take_back(self, lost: Iterable[Lease], certain: bool) -> int:
        """These leases did not come to whom they were dealt; how many samples that are. ``certain``: nor will they."""
        spans = [(lease.epoch, lease.lo, lease.hi) for lease in lost if self.open.pop(lease.lease, None) is not None]
        if certain:
            self.untouched += spans
        self.returned = joined([*self.returned, *spans])
        return count(spans)

    # ------------------------------------------------------------------------------------------- what is set aside

    def set_aside(self, rank: int, epoch: int, places: int, length: int, batch: int) -> list[Span]:
        """For ``rank`` alone: about so many of the last places of the pass that are not dealt yet, in whole batches. Of a
        pass that nobody has begun, also what others gave up.

        >>> leases = Leases(); leases.set_aside(3, 0, 25, length=100, batch=10)
        [(0, 80, 100)]
        """
        current = self.passes.setdefault(epoch, Pass(length))
        if current.length != length:
            return []
        spans = last((epoch, current.dealt, current.end), places, batch)
        current.end = spans[0][1] if spans else current.end
        for span in [] if current.begun else [one for one in self.untouched if one[0] == epoch]:
            spans += last(span, places - count(spans), batch)
        for span in spans:
            self.returned, self.untouched = without(self.returned, span), without(self.untouched, span)
        if spans:
            self.reserved[rank] = joined([*self.reserved.get(rank, []), *spans])
            self.log.append(SetAside(rank, spans, length))
        return spans

    def give_back(self, rank: int, kept: Iterable[Span]) -> int:
        """Of what was set aside for ``rank``, it gives up all but ``kept``; how many places that are."""
        spans = self.reserved.get(rank, [])
        for span in kept:
            spans = without(spans, span)
        for span in spans:
            self.reserved[rank] = without(self.reserved[rank], span)
        self.spare(spans)
        return count(spans)

    def taken(self, rank: int, lease: Lease) -> bool:
        """``rank`` took this lease from what was set aside for it. False: that is not so (any more)."""
        span = (lease.epoch, lease.lo, lease.hi)
        if count(common(self.reserved.get(rank, []), span)) != lease.hi - lease.lo or lease.lo >= lease.hi:
            return False
        if lease.lease in self.open:
            return False
        self.reserved[rank] = without(self.reserved[rank], span)
        self.hold(rank, lease, self.passes[lease.epoch].length)
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

    @property
    def samples_trained(self) -> int:
        """Samples of all passes that were reported as trained."""
        return sum(each.done for each in self.passes.values())

    def samples_left(self, epochs: int) -> int:
        """Samples of the first ``epochs`` passes that nobody reported as trained. A pass that is still to come is taken
        for one as long as the latest.

        >>> Leases({0: Pass(10, done=10), 1: Pass(10, done=4)}).samples_left(3)
        16
        """
        if not self.passes:
            return 0
        known = [each.length - each.done for epoch, each in self.passes.items() if epoch < epochs]
        return sum(known) + (epochs - len(known)) * self.passes[max(self.passes)].length

    # ------------------------------------------------------------------------------------------------------- dealing

    def _deal_again(self, rank: int, span: Span, batch: int, live_workers: int) -> Lease:
        epoch, lo, hi = span
        # cut it by what is left of its pass altogether, so that the end of the last pass is shared out evenly
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

    # ------------------------------------------------------------------------------------------- places change hands

    def hold(self, rank: int, lease: Lease, length: int) -> None:
        """``rank`` has this lease from now on."""
        self.passes[lease.epoch].begun = True
        self.open[lease.lease] = (rank, lease)
        self.log.append(Dealt(rank, lease, length))

    def count_again(self, span: Span) -> None:
        """These had been returned, and are dealt."""
        self.samples_again += span[2] - span[1] - count(common(self.untouched, span))
        self.untouched = without(self.untouched, span)

    def spare(self, spans: Iterable[Span]) -> None:
        """To be dealt again, though nobody has begun them."""
        spans = list(spans)
        self.untouched = joined([*self.untouched, *spans])
        self.returned = joined([*self.returned, *spans])

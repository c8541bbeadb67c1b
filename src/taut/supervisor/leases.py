"""Data leases: who trains on which places of a pass over the data. Each place is dealt exactly once while
nobody dies.

A pass is dealt in chunks that shrink towards its end (guided self-scheduling, Polychronopoulos and Kuck
1987), so that fast workers get more and all end at about the same time. What a dead worker held is dealt
again, first of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from taut.core.messages import Lease
from taut.errors import Misuse

Span = tuple[int, int, int]  # pass, from which place, to before which
HOLD: Final = "hold"
MOST_BATCHES = 64  # of one lease: bounds what a death makes uncertain


@dataclass(slots=True)
class Pass:
    """One epoch: its length, the first place not dealt yet, and how many places were reported as trained."""

    length: int
    dealt: int = 0
    done: int = 0

    @property
    def left(self) -> int:
        return self.length - self.dealt


def chunk(left: int, batch: int, live_workers: int, least: int = 1, after: int = 0) -> int:
    """How many places to deal: about left / (4 p), in whole batches, from 1 to 64 of them, never more than
    are left. ``least`` batches if that is more, since steps may be so short that small leases would be waited
    for; but no more than left / p, or a quarter of a worker's share of all that is left where ``after`` places of
    later passes follow: nobody waits at the end of this one then, but everybody at the end of the last.

    >>> [chunk(left, batch=10, live_workers=2) for left in (1000, 25, 3)]
    [120, 10, 3]
    >>> [chunk(left, batch=10, live_workers=2, least=30) for left in (1000, 100, 25)]
    [300, 50, 10]
    >>> [chunk(100, batch=10, live_workers=2, least=30, after=after) for after in (300, 10_000)]
    [50, 100]
    """
    share, of_all = (places // (max(1, live_workers) * batch) for places in (left, left + after))
    batches = max(share // 4, min(least, max(share, of_all // 4)))
    return min(left, batch * min(MOST_BATCHES, max(1, batches)))


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same places in as few spans as can be, in order.

    >>> joined([(0, 4, 6), (0, 0, 4), (0, 3, 5), (1, 6, 8), (0, 9, 9)])
    [(0, 0, 6), (1, 6, 8)]
    """
    found: list[Span] = []
    for epoch, lo, hi in sorted(spans):
        if lo >= hi:
            continue
        if found and found[-1][0] == epoch and found[-1][2] >= lo:
            found[-1] = (epoch, found[-1][1], max(hi, found[-1][2]))
        else:
            found.append((epoch, lo, hi))
    return found


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
    returned: list[tuple[int, int, int]] = field(default_factory=list)  # (epoch, lo, hi), to be dealt again
    samples_again: int = 0  # dealt again: perhaps trained twice
    issued: int = 0
    untouched: int = 0  # of those to be dealt again, so many that nobody began: a run was continued without them

    @classmethod
    def continued(cls, lengths: Mapping[int, int], undone: Iterable[Span]) -> Leases:
        """The passes of a run that goes on from a checkpoint: ``undone`` is what is left of those begun.

        >>> leases = Leases.continued({0: 10, 1: 10}, [(0, 2, 4), (1, 5, 10)])
        >>> leases.returned, leases.passes[1].dealt, leases.samples_undone
        ([(0, 2, 4)], 5, 7)
        """
        leases = cls({epoch: Pass(length, length, length) for epoch, length in lengths.items()})
        for epoch, lo, hi in joined(undone):
            current = leases.passes[epoch]
            current.done -= hi - lo
            if hi == current.length:
                current.dealt = lo  # so that who is alone goes on in the very same order
            else:
                leases.returned.append((epoch, lo, hi))
        leases.untouched = sum(hi - lo for _, lo, hi in leases.returned)
        return leases

    def undone(self, reached: Mapping[int, int], later: Iterable[Span]) -> list[Span]:
        """What a checkpoint does not contain of the passes begun: all that is not trained on now, from ``reached`` (by
        lease) where a worker came that far, and what was trained on ``later``."""
        spans = [*later, *self.returned]
        spans += [(epoch, each.dealt, each.length) for epoch, each in self.passes.items()]
        spans += [(one.epoch, reached.get(number, one.lo), one.hi) for number, (_, one) in self.open.items()]
        return joined(spans)

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
    ) -> Lease | Literal["hold"] | None:
        """A lease, None when the pass is dealt out, or HOLD: ask again after the next `done` or `release`.

        What was returned comes first, whatever its epoch. A ``last`` request is held while others still
        have open leases, so that a late death leaves nothing undone. Raises Misuse when ``length`` is not
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
        if self.returned:
            return self._deal_again(rank, batch, live_workers)
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

    def done(self, rank: int, ids: list[int]) -> int:
        """These leases were trained on; how many samples that are. Ids that ``rank`` does not hold are
        passed over."""
        samples = 0
        for lease_id in ids:
            holder, lease = self.open.get(lease_id, (None, None))
            if lease is None or holder != rank:
                continue
            del self.open[lease_id]
            self.passes[lease.epoch].done += lease.hi - lease.lo
            samples += lease.hi - lease.lo
        return samples

    def release(self, rank: int) -> int:
        """``rank`` is gone or stopped: its open leases are to be dealt again. Returns how many samples they
        hold."""
        mine = [lease for holder, lease in self.open.values() if holder == rank]
        for lease in mine:
            del self.open[lease.lease]
            self.returned.append((lease.epoch, lease.lo, lease.hi))
        self.returned.sort()
        return sum(lease.hi - lease.lo for lease in mine)

    def claim(self, epoch: int, lo: int, hi: int) -> None:
        """Somebody has these places: they are not to be dealt again.

        >>> leases = Leases(returned=[(0, 0, 10), (1, 0, 5)])
        >>> leases.claim(0, 4, 6); leases.returned
        [(0, 0, 4), (0, 6, 10), (1, 0, 5)]
        """
        left: list[tuple[int, int, int]] = []
        for other, begin, end in self.returned:
            if other != epoch or end <= lo or hi <= begin:
                left.append((other, begin, end))
                continue
            left += [(other, *part) for part in ((begin, lo), (hi, end)) if part[0] < part[1]]
        self.returned = left

    @property
    def samples_undone(self) -> int:
        """Samples of the passes begun so far that nobody reported as trained."""
        return sum(each.length - each.done for each in self.passes.values())

    def progress(self) -> tuple[int, int, int]:
        """(epoch, done, length) of the earliest pass that is not complete, else of the latest; zeros before
        the first."""
        if not self.passes:
            return 0, 0, 0
        incomplete = [epoch for epoch, each in self.passes.items() if each.done < each.length]
        epoch = min(incomplete) if incomplete else max(self.passes)
        return epoch, self.passes[epoch].done, self.passes[epoch].length

    def _deal_again(self, rank: int, batch: int, live_workers: int) -> Lease:
        epoch, lo, hi = self.returned.pop(0)
        # cut it by what is left of its pass altogether, so that the end of the last pass is shared out evenly
        left = hi - lo + self.passes[epoch].left
        left += sum(end - begin for other, begin, end in self.returned if other == epoch)
        middle = min(hi, lo + chunk(left, batch, live_workers))
        if middle < hi:
            self.returned.insert(0, (epoch, middle, hi))
        fresh = min(self.untouched, middle - lo)
        self.untouched -= fresh
        self.samples_again += middle - lo - fresh
        return self._issue(rank, epoch, lo, middle)

    def _issue(self, rank: int, epoch: int, lo: int, hi: int) -> Lease:
        lease = Lease(lease=self.issued, epoch=epoch, lo=lo, hi=hi)
        self.issued += 1
        self.open[lease.lease] = (rank, lease)
        return lease

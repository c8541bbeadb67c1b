"""This worker's share of the data: leases from the supervisor become batches; a finished lease is reported back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from taut.core.messages import Lease
from taut.errors import Misuse
from taut.worker.data.batch_share import BatchShare

Indices = npt.NDArray[np.int64]
Order = Callable[[int, int], Indices]  # seed, number of a pass: the samples that the pass deals, in their order
LATER: Final = "later"


@dataclass(frozen=True)
class BatchPlan:
    """Passes ``first`` to ``until - 1`` over ``length`` samples each, checked. ``last``: no other passes follow."""

    length: int
    batch_size: int
    first: int
    until: int
    last: bool
    order: Order
    drop_last: bool
    samples: int = 0  # a digest of which samples they are, where the data set is a part of another
    stretches: bool = False  # leases as long as may be: each batch is to follow the one before it
    pace: BatchShare | None = None  # this worker's share of a global batch, which the size of a batch follows
    split: bool = False  # each process of an island reads a part of every batch

    def __post_init__(self) -> None:
        if self.length < 1:
            raise Misuse("an empty data set", "at least one sample")
        if not isinstance(self.batch_size, int) or self.batch_size < 1:
            raise Misuse(f"batch_size={self.batch_size}", "a whole number of at least 1")
        if self.until <= self.first:
            raise Misuse(f"epochs={self.until - self.first}", "at least 1")

    @property
    def size(self) -> int:
        """Return the samples of this worker's next batch."""
        return self.batch_size if self.pace is None else self.pace.size

    def batches(self, complete: int = 0) -> int:
        """Return how many batches all workers make together of the passes from ``complete`` on."""
        passes = max(0, self.until - max(self.first, complete))
        if self.pace is not None:
            return -(-passes * self.length // self.pace.global_batch)
        return passes * (self.length // self.batch_size if self.drop_last else -(-self.length // self.batch_size))


class LeaseSource(ABC):
    """The supervisor through the communication thread or, for a worker alone, the worker itself."""

    @abstractmethod
    def take(self, plan: BatchPlan, ahead: bool = False) -> Lease | Literal["later"] | None:
        """Return the next lease for the plan, or None when its passes are dealt out or the run is stopping.

        ``ahead``: never wait; return LATER where no lease is at hand."""

    @abstractmethod
    def done(self, lease: Lease) -> None:
        """Report that the lease was trained on."""

    def holds(self, lease: Lease) -> bool:
        """Return whether the lease is still this worker's: the worker may have rejoined with another rank."""
        return True


class OwnLeases(LeaseSource):
    """A worker alone, or its own data: each pass is one lease. ``complete``: passes that were trained on; ``plan``: the
    last that a lease was taken for. ``begin_at`` skips what was trained on before the run was resumed.

    >>> leases, plan = OwnLeases(), BatchPlan(10, 5, 0, 2, True, lambda seed, epoch: np.arange(10), False)
    >>> leases.begin_at(0, 5)
    >>> first, second = leases.take(plan), leases.take(plan)
    >>> (first.lo, first.hi), (second.epoch, second.lo), leases.take(plan)
    ((5, 10), (1, 0), None)
    """

    def __init__(self) -> None:
        self._dealt = self._skipped = self.complete = 0
        self.plan: BatchPlan | None = None

    def begin_at(self, complete: int, samples: int) -> None:
        """Begin after so many passes, and so many samples of the next one."""
        self._dealt, self._skipped, self.complete = complete, samples, complete

    def take(self, plan: BatchPlan, ahead: bool = False) -> Lease | None:
        self.plan, epoch = plan, max(self._dealt, plan.first)
        if epoch >= plan.until:
            return None
        skipped, self._skipped = min(self._skipped, plan.length - 1), 0
        self._dealt = epoch + 1
        return Lease(epoch, epoch, skipped, plan.length)

    def done(self, lease: Lease) -> None:
        """Note that the pass was trained on."""
        self.complete = lease.epoch + 1


class Dealer:
    """Turns leases into batches of indices, and reports a lease when its last batch has been trained on."""

    def __init__(self, source: LeaseSource, seed: int) -> None:
        self.source, self.seed = source, seed
        self._next_pass = 0
        self._orders: dict[int, tuple[Order, Indices]] = {}
        self.progress: dict[int, int] = {}  # samples trained on, of each lease that is begun
        self.complete = 0  # passes before this one were trained on before the run was resumed
        self.reached = 0  # the latest pass that a batch was trained on of

    def passes(self, count: int) -> tuple[int, int]:
        """Return the numbers of the next ``count`` passes: first, and one after the last."""
        first = self._next_pass
        self._next_pass += max(0, count)
        return first, first + count

    def samples_of(self, lease: Lease, plan: BatchPlan) -> Indices:
        return self.pass_order(lease.epoch, plan)[lease.lo : lease.hi]

    def pass_order(self, epoch: int, plan: BatchPlan) -> Indices:
        """Return the samples of a pass, in its order."""
        known, indices = self._orders.get(epoch, (None, None))
        if indices is None or known is not plan.order:
            self._orders.pop(epoch, None)
            while len(self._orders) > 1:  # this pass and one other, of which a dead worker's leases may come back
                del self._orders[next(iter(self._orders))]
            indices = plan.order(self.seed, epoch)
            self._orders[epoch] = plan.order, indices
        return indices

    def trained(self, lease: Lease, samples: int, last: bool) -> None:
        """Note that a batch of the lease was trained on; after its ``last`` one, report the lease."""
        self.reached = max(self.reached, lease.epoch)
        self.progress[lease.lease] = self.progress.get(lease.lease, 0) + samples
        if last:
            self.progress.pop(lease.lease, None)
            self.source.done(lease)


class Share(Iterator[Indices]):
    """This worker's batches of indices, for a reader that may ask ahead of training (a ``DataLoader`` with processes).

    The law: it waits for a lease only if every batch that it gave was trained on, since the supervisor's answer may
    depend on those batches: at the end of the last pass it holds requests back until all leases were reported. If it
    would have to wait it stops early; asked again, it goes on. ``over``: nothing follows.

    ``most``: batches that a loop has at hand before it trains on the first of them; the share waits in spite of these.
    The supervisor's answer does not depend on them if the pass is not the last.
    """

    def __init__(self, dealer: Dealer, plan: BatchPlan, most: int = 0) -> None:
        self._dealer, self._plan, self._most = dealer, plan, most
        self._batches: Iterator[Indices] = iter(())  # of the lease at hand
        self._handed: deque[tuple[Lease, int, bool]] = deque()  # of each batch: its lease, its samples, whether the last
        self.over = plan.until <= dealer.complete
        self.stopped = False  # an island's, since the run is stopping

    def __next__(self) -> Indices:
        while not self.over:
            for batch in self._batches:
                return batch
            lease = self._dealer.source.take(self._plan, ahead=len(self._handed) > self._most)
            if lease == LATER:
                break
            if lease is None:
                self.over = True
            else:
                self._batches = self._cut(lease)
        raise StopIteration

    def _cut(self, lease: Lease) -> Iterator[Indices]:
        source, size = self._dealer.source, self._plan.batch_size
        indices = self._dealer.samples_of(lease, self._plan)
        starts = range(0, len(indices), size)
        if self._plan.drop_last and len(indices) % size:
            starts = starts[:-1]
        if not starts:
            source.done(lease)
        for start in starts:
            if not source.holds(lease):
                break
            batch = indices[start : start + size]
            self._handed.append((lease, len(batch), start == starts[-1]))
            yield batch

    def handed(self) -> int:
        """Return how many samples the batch has that is being trained on."""
        return self._handed[0][1] if self._handed else 0

    def place(self) -> tuple[int, int, int]:
        """Return where in the data the batch is that is being trained on: its pass, its first sample, and the one after
        its last."""
        lease, samples, _ = self._handed[0]
        lo = lease.lo + self._dealer.progress.get(lease.lease, 0)
        return lease.epoch, lo, lo + samples

    def trained(self) -> int:
        """Note that the oldest batch handed out was trained on; return how many samples it had."""
        lease, samples, last = self._handed.popleft()
        self._dealer.trained(lease, samples, last)
        return samples


class Batches(Iterator[Any]):
    """The result of ``worker.batches``. Its length is the number of batches that this worker can expect with the present
    number of workers; a faster one gets more."""

    def __init__(
        self, dealt: Iterator[Any], length: Callable[[], int], place: Callable[[], tuple[int, int, int]] | None = None
    ) -> None:
        self._dealt, self._length, self._place = dealt, length, place
        self._end = (-1, -1)  # of the last batch: its pass, and the sample after its last
        self._follows = False

    def __next__(self) -> Any:
        batch = next(self._dealt)
        if self._place is not None:
            epoch, lo, hi = self._place()
            self._follows, self._end = self._end == (epoch, lo), (epoch, hi)
        return batch

    @property
    def follows(self) -> bool:
        """Return whether the batch at hand begins where the one before it ended, in the same pass: a hidden state may be
        carried over. Known with ``order="sequential"``."""
        if self._place is None:
            expected = 'batches(..., order="sequential"), in which one batch follows the other'
            raise Misuse("batches(...).follows in another order", expected)
        return self._follows

    def __len__(self) -> int:
        return self._length()

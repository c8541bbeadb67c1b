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
    pace: BatchShare | None = None  # this worker's share of a global batch, which the size of a batch follows

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
    """A worker alone: each pass is one lease."""

    def __init__(self) -> None:
        self._dealt = 0

    def take(self, plan: BatchPlan, ahead: bool = False) -> Lease | None:
        epoch = max(self._dealt, plan.first)
        if epoch >= plan.until:
            return None
        self._dealt = epoch + 1
        return Lease(epoch, epoch, 0, plan.length)

    def done(self, lease: Lease) -> None:
        """Do nothing: there is no supervisor."""


class Dealer:
    """Turns leases into batches of indices, and reports a lease when its last batch has been trained on."""

    def __init__(self, source: LeaseSource, seed: int) -> None:
        self.source, self.seed = source, seed
        self._next_pass = 0
        self._orders: dict[int, tuple[Order, Indices]] = {}
        self.open: list[Share] = []  # those that a loop of the script is reading
        self.progress: dict[int, int] = {}  # samples trained on, of each lease that is begun
        self.complete = 0  # passes before this one were trained on before the run was resumed

    def passes(self, count: int) -> tuple[int, int]:
        """Return the numbers of the next ``count`` passes: first, and one after the last."""
        first = self._next_pass
        self._next_pass += max(0, count)
        return first, first + count

    def handed(self) -> int:
        """Return how many samples the batches have that are being trained on; 0 if they did not come from here."""
        return sum(share.handed() for share in self.open)

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
        self.progress[lease.lease] = self.progress.get(lease.lease, 0) + samples
        if last:
            self.progress.pop(lease.lease, None)
            self.source.done(lease)


class Share(Iterator[Indices]):
    """This worker's batches of indices, for a reader that may ask ahead of training (a ``DataLoader`` with processes).

    The law: it waits for a lease only if every batch that it gave was trained on, since the supervisor's answer may
    depend on those batches: at the end of the last pass it holds requests back until all leases were reported. If it
    would have to wait it stops early; asked again, it goes on. ``over``: nothing follows.
    """

    def __init__(self, dealer: Dealer, plan: BatchPlan) -> None:
        self._dealer, self._plan = dealer, plan
        self._batches: Iterator[Indices] = iter(())  # of the lease at hand
        self._handed: deque[tuple[Lease, int, bool]] = deque()  # of each batch: its lease, its samples, whether the last
        self.over = plan.until <= dealer.complete
        self.stopped = False  # an island's, since the run is stopping

    def __next__(self) -> Indices:
        while not self.over:
            for batch in self._batches:
                return batch
            lease = self._dealer.source.take(self._plan, ahead=bool(self._handed))
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

    def trained(self) -> int:
        """Note that the oldest batch handed out was trained on; return how many samples it had."""
        lease, samples, last = self._handed.popleft()
        self._dealer.trained(lease, samples, last)
        return samples


class Batches(Iterator[Any]):
    """The result of ``worker.batches``. Its length is the number of batches that this worker can expect with the present
    number of workers; a faster one gets more."""

    def __init__(self, dealt: Iterator[Any], length: Callable[[], int]) -> None:
        self._dealt, self._length = dealt, length

    def __next__(self) -> Any:
        return next(self._dealt)

    def __len__(self) -> int:
        return self._length()

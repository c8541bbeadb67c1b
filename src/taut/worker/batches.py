"""This worker's share of the data: leases from the supervisor become batches; a finished lease is reported back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from taut.core.messages import Lease
from taut.core.order import order
from taut.errors import Misuse

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """What ``batches`` was asked for, checked: passes ``first`` to ``until - 1`` over ``length`` samples. ``last``: no
    others follow."""

    length: int
    batch_size: int
    first: int
    until: int
    last: bool
    shuffle: bool
    drop_last: bool

    def __post_init__(self) -> None:
        if self.length < 1:
            raise Misuse("an empty data set", "at least one sample")
        if not isinstance(self.batch_size, int) or self.batch_size < 1:
            raise Misuse(f"batch_size={self.batch_size}", "a whole number of at least 1")
        if self.until <= self.first:
            raise Misuse(f"epochs={self.until - self.first}", "at least 1")


class LeaseSource(ABC):
    """Where leases come from: the supervisor through a node, or, for a worker alone, itself."""

    @abstractmethod
    def take(self, plan: Plan) -> Lease | None:
        """The next lease for the plan, or None when its passes are dealt out or the run is stopping."""

    @abstractmethod
    def done(self, lease: Lease) -> None:
        """The lease was trained on."""

    def holds(self, lease: Lease) -> bool:
        """Whether it is still this worker's: its place in the run may have changed."""
        return True


class OwnLeases(LeaseSource):
    """A worker alone: each pass is one lease."""

    def __init__(self) -> None:
        self._dealt = 0

    def take(self, plan: Plan) -> Lease | None:
        epoch = max(self._dealt, plan.first)
        if epoch >= plan.until:
            return None
        self._dealt = epoch + 1
        return Lease(epoch, epoch, 0, plan.length)

    def done(self, lease: Lease) -> None:
        """Nobody to tell."""


class Dealer:
    """Turns leases into batches of indices, and reports a lease when its last batch has been trained on."""

    def __init__(self, source: LeaseSource, seed: int) -> None:
        self.source, self.seed = source, seed
        self._next_pass = 0
        self._orders: dict[int, Indices] = {}
        self._handed: deque[tuple[int, Lease, bool]] = deque()  # samples of a batch, of which lease, whether its last
        self.progress: dict[int, int] = {}  # places trained on, of each lease that is begun
        self.complete = 0  # passes before this one were trained on in an earlier life of the run

    def passes(self, count: int) -> tuple[int, int]:
        """The numbers of the next ``count`` passes: first, and one after the last."""
        first = self._next_pass
        self._next_pass += max(0, count)
        return first, first + count

    def indices(self, plan: Plan) -> Iterator[Indices]:
        """Batches of indices, pass after pass."""
        if plan.until <= self.complete:
            return
        while (lease := self.source.take(plan)) is not None:
            places = self._order(lease.epoch, plan)[lease.lo : lease.hi]
            starts = range(0, len(places), plan.batch_size)
            if plan.drop_last and len(places) % plan.batch_size:
                starts = starts[:-1]
            if not starts:
                self.source.done(lease)
            for start in starts:
                if not self.source.holds(lease):
                    break
                batch = places[start : start + plan.batch_size]
                self._handed.append((len(batch), lease, start == starts[-1]))
                yield batch

    def handed(self) -> int:
        """How many samples the batch has that is being trained on; 0 if it did not come from here."""
        return self._handed[0][0] if self._handed else 0

    def trained(self) -> int:
        """The oldest batch handed out has been trained on; how many samples it had."""
        if not self._handed:
            return 0
        samples, lease, last = self._handed.popleft()
        self.progress[lease.lease] = self.progress.get(lease.lease, 0) + samples
        if last:
            self.progress.pop(lease.lease, None)
            self.source.done(lease)
        return samples

    def _order(self, epoch: int, plan: Plan) -> Indices:
        if epoch not in self._orders:
            while len(self._orders) > 1:  # this pass and one other that a death may bring back
                del self._orders[next(iter(self._orders))]
            self._orders[epoch] = order(plan.length, self.seed, epoch, plan.shuffle)
        return self._orders[epoch]


Read = Callable[[Iterator[Indices], int], Iterator[Any]]  # the batches' indices, and the number of the first pass


def reader(dataset: Any, **loader: Any) -> tuple[int, Read]:
    """The data set's length, and a function that turns batches of indices into batches of samples.

    Tensors and arrays (or a tuple of them, or a ``TensorDataset``) are indexed directly; any other map-style data set
    goes through a ``DataLoader`` with our order as its batch sampler.
    """
    from torch.utils.data import DataLoader, IterableDataset, TensorDataset

    if isinstance(dataset, DataLoader):
        loader = {"num_workers": dataset.num_workers, "collate_fn": dataset.collate_fn, **loader}
        dataset = dataset.dataset
    if isinstance(dataset, IterableDataset):
        raise Misuse("an IterableDataset", "a data set with a length and an index", "samples are leased by their index")
    columns = dataset.tensors if isinstance(dataset, TensorDataset) else dataset
    if _is_column(columns):
        return len(columns), lambda indices, _: (_pick(columns, batch) for batch in indices)
    if isinstance(columns, tuple | list) and columns and all(_is_column(column) for column in columns):
        lengths = {len(column) for column in columns}
        if len(lengths) > 1:
            raise Misuse(f"columns of {sorted(lengths)} samples", "columns of one length")
        return lengths.pop(), lambda indices, _: (tuple(_pick(c, batch) for c in columns) for batch in indices)
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise Misuse(
            f"a data set of type {type(dataset).__name__}",
            "tensors, arrays, or a map-style data set (with __len__ and __getitem__)",
        )
    return len(dataset), lambda indices, first: _loaded(dataset, indices, first, loader)


def _loaded(dataset: Any, indices: Iterator[Indices], first: int, loader: dict[str, Any]) -> Iterator[Any]:
    import torch
    from torch.utils.data import DataLoader

    if "generator" not in loader:
        # A DataLoader draws one number when it begins. From the script's own generator, a run that is continued in
        # mid-pass, and so begins once more, would go on with other random numbers.
        seed = (torch.initial_seed() + 0x9E3779B9 * first) % 2**63
        loader = {**loader, "generator": torch.Generator().manual_seed(seed)}
    sampler: Any = (batch.tolist() for batch in indices)
    return iter(DataLoader(dataset, batch_sampler=sampler, **loader))


def _is_column(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor | np.ndarray) and value.ndim > 0


def _pick(column: Any, batch: Indices) -> Any:
    if isinstance(column, np.ndarray):
        return column[batch]
    import torch

    return column[torch.from_numpy(batch).to(column.device)]

"""Streams: data that is read from its begin to its end, and has no index.

``taut.data.Shards`` are leased by shard: the supervisor deals numbers of shards, and a lease is done when the last batch
of its last shard was trained on. An ``IterableDataset`` with ``own=True`` is one shard, of this worker's own: it is read
once per pass. A shard that was begun and not ended (a death, a checkpoint in its middle) is read again from its begin. No
batch has samples of two shards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch.utils import data

from taut.data.shards import Shards
from taut.errors import Misuse
from taut.worker.data.batches import BatchPlan, Dealer, Order, Share
from taut.worker.data.sampling import whole

Read = Callable[[Share, int], Iterator[Any]]
OWN_OR_SHARDS = (
    "own=True: each worker reads the stream for itself; or leased by shard: batches(taut.data.Shards(files, read), ...)"
)


class ShardShare(Share):
    """This worker's shards. The reader calls ``came`` for each batch that it reads, and ``exhausted`` at the end of a
    shard, when all of its batches were trained on."""

    def __init__(self, dealer: Dealer, plan: BatchPlan) -> None:
        super().__init__(dealer, plan)
        self._length = plan.length
        self._sizes: deque[int] = deque()  # of the batches that were read and not trained on
        self._trained = 0  # samples of the present shard

    def came(self, samples: int) -> None:
        """Note that a batch of the present shard was read."""
        self._sizes.append(samples)

    def exhausted(self) -> None:
        """Note that the present shard is trained on."""
        self._trained = 0
        super().trained()

    def handed(self) -> int:
        return self._sizes[0] if self._sizes else 0

    def place(self) -> tuple[int, int, int]:
        """Return where the batch at hand is: the number of its shard over all passes, and its samples in that."""
        epoch, shard, _ = super().place()
        return epoch * self._length + shard, self._trained, self._trained + self._sizes[0]

    def trained(self) -> int:
        samples = self._sizes.popleft()
        self._trained += samples
        return samples


def is_stream(dataset: Any) -> bool:
    """Return whether the data has no index."""
    if isinstance(dataset, data.DataLoader):
        dataset = dataset.dataset
    return isinstance(dataset, Shards | data.IterableDataset)


def stream_of(
    dataset: Any,
    batch_size: int | None,
    shuffle: bool | None,
    drop_last: bool | None,
    own: bool,
    options: dict[str, Any],
) -> tuple[int, Order, int, bool, Read, int, bool]:
    """Return how many shards there are, in which order they come, and how they are read. Raises ``Misuse`` if they cannot
    be. ``options``: of a DataLoader."""
    for name in ("sampler", "batch_sampler"):
        if options.get(name) is not None:
            raise Misuse(f"{name}=... with a stream", "data with an index, for a sampler", f"leave {name} out")
    if isinstance(dataset, Shards):
        count, names, opened = len(dataset), dataset.names, _shard_reader(dataset, batch_size, drop_last, options)
        shuffles = shuffle is not False
    else:
        count, names, opened = 1, [], _own_reader(dataset, batch_size, drop_last, own, options)
        shuffles = False
        if shuffle:
            raise Misuse("shuffle=True with a stream", "the order in which it comes", "shuffle where it is made")
    length, order = whole(count, shuffles)
    return length, order, 1, False, _reader(opened, batch_size or 1), 0 if own else _digest(names), True


def _shard_reader(
    shards: Shards, batch_size: int | None, drop_last: bool | None, options: dict[str, Any]
) -> Callable[[int], Iterable[Any]]:
    if batch_size is None:
        raise Misuse("batches() without batch_size", "a batch size")
    if options.get("num_workers", 0) > 1:
        given = f"num_workers={options['num_workers']} with Shards"
        raise Misuse(given, "0 or 1: each shard is read by one process", "more workers read more shards at a time")
    seeded = {"generator": torch.Generator().manual_seed(torch.initial_seed() % 2**63)} | options

    def opened(index: int) -> Iterable[Any]:
        samples = _Samples(shards.read, shards.shards[index])
        return data.DataLoader(samples, batch_size=batch_size, drop_last=bool(drop_last), **seeded)

    return opened


def _own_reader(
    dataset: Any, batch_size: int | None, drop_last: bool | None, own: bool, options: dict[str, Any]
) -> Callable[[int], Iterable[Any]]:
    if not own:
        raise Misuse("an IterableDataset", OWN_OR_SHARDS, "samples are leased by their index otherwise")
    if isinstance(dataset, data.DataLoader):
        if options or batch_size is not None or drop_last is not None:
            raise Misuse("options of batches beside a DataLoader of a stream", "those of the DataLoader alone")
        return lambda _: dataset
    if batch_size is None:
        raise Misuse("batches() without batch_size", "a batch size")
    loader = data.DataLoader(dataset, batch_size=batch_size, drop_last=bool(drop_last), **options)
    return lambda _: loader


def _reader(opened: Callable[[int], Iterable[Any]], batch_size: int) -> Read:
    def read(share: Share, _: int) -> Iterator[Any]:
        assert isinstance(share, ShardShare)
        for (index,) in share:
            for batch in opened(int(index)):
                share.came(samples_in(batch, batch_size))
                yield batch
            share.exhausted()

    return read


class _Samples(data.IterableDataset[Any]):
    """The samples of one shard."""

    def __init__(self, read: Callable[[Any], Iterable[Any]], shard: Any) -> None:
        self._read, self._shard = read, shard

    def __iter__(self) -> Iterator[Any]:
        return iter(self._read(self._shard))


def samples_in(batch: Any, usual: int) -> int:
    """Return how many samples a batch has; ``usual`` where that does not show.

    >>> samples_in([torch.zeros(3, 2), torch.zeros(3)], 8), samples_in({"x": torch.zeros(5)}, 8), samples_in("text", 8)
    (3, 5, 8)
    """
    parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, tuple | list) else [batch]
    first = next(iter(parts), None)
    return len(first) if isinstance(first, torch.Tensor | np.ndarray) and first.ndim else usual


def _digest(names: list[str]) -> int:
    """Return a digest of the shards' names, by which workers are compared."""
    if not names:
        return 0
    return 1 + int.from_bytes(blake2b("\n".join(names).encode(), digest_size=6).digest(), "big")


def unknown_length() -> int:
    """Raise ``TypeError``, as ``len`` does: loops that show their progress go without a total then."""
    raise TypeError("the batches of a stream cannot be counted before it was read")


def check_indexed(streams: bool, what: str) -> None:
    """Raise ``Misuse`` for a stream where the number of batches, or their indices, must be known."""
    if streams:
        raise Misuse(
            f"{what} with a stream", "data with an index (__len__ and __getitem__)", "count the batches yourself"
        )


def check_alone(island: bool) -> None:
    """Raise ``Misuse`` for a stream in an island: its processes read the same samples, by their index."""
    if island:
        raise Misuse("a stream in an island", "data with an index (__len__ and __getitem__)", "or a run without islands")

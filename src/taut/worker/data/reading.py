"""The argument of ``batches``: a data set, or a ``DataLoader``, of which everything is taken over or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.utils import data

from taut.errors import Misuse
from taut.specs import did_you_mean
from taut.worker.data.batches import Indices, Order, Share
from taut.worker.data.sampling import sampled, whole
from taut.worker.data.streams import is_stream, stream_of

Read = Callable[[Share, int], Iterator[Any]]  # the batches' indices, and the number of the first pass

OWN = ("batch_size", "global_batch", "epochs", "shuffle", "drop_last", "order", "own", "split")  # of worker.batches
OPTIONS = (  # of a DataLoader
    "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context",
    "prefetch_factor", "persistent_workers", "pin_memory_device", "generator", "in_order", "sampler",
    "batch_sampler",
)  # fmt: skip

_kept: WeakKeyDictionary[Any, Read] = WeakKeyDictionary()  # by the script's DataLoader, whose processes stay


@dataclass(frozen=True)
class Data:
    """``length``: samples in a pass; ``order``: which they are; ``read`` turns batches of indices into batches.
    ``samples``: a digest of all indices that a sampler or a ``Subset`` picks, by which workers are compared; else 0.
    ``streams``: what is dealt are shards, each with samples of its own."""

    length: int
    order: Order
    batch_size: int
    drop_last: bool
    read: Read
    samples: int = 0
    streams: bool = False


def data_of(
    dataset: Any,
    batch_size: int | None = None,
    shuffle: bool | None = None,
    drop_last: bool | None = None,
    own_data: bool = False,
    **options: Any,
) -> Data:
    """Return how a data set or a DataLoader is read. Raises ``Misuse`` if it cannot be. The script's own arguments (None
    if it gave none) take precedence over the DataLoader's. ``own_data``: it is this worker's alone."""
    for name in options:
        if name not in OPTIONS:
            raise Misuse(f"batches({name}=...)", "an option of DataLoader", did_you_mean(name, (*OWN, *OPTIONS)))
    if is_stream(dataset):
        return Data(*stream_of(dataset, batch_size, shuffle, drop_last, own_data, options))
    loader = dataset if isinstance(dataset, data.DataLoader) else None
    if loader is not None:
        dataset, options = loader.dataset, _options_of(loader) | options
    sampler, batch_sampler = options.pop("sampler", None), options.pop("batch_sampler", None)
    if batch_sampler is not None and sampler is None:
        if type(batch_sampler) is not data.BatchSampler:
            raise Misuse(
                f"a {type(batch_sampler).__name__} as batch_sampler",
                "a BatchSampler of torch's, around one of its samplers",
                "taut makes the batches: batches(dataset, batch_size, collate_fn=...)",
            )
        sampler = batch_sampler.sampler
        batch_size = batch_sampler.batch_size if batch_size is None else batch_size
        drop_last = batch_sampler.drop_last if drop_last is None else drop_last
    if batch_size is None:
        raise Misuse("batches() without batch_size", "a batch size")
    if not options.pop("in_order", True):
        raise Misuse("in_order=False", "batches in the order in which they were dealt", "leave in_order out")
    length, read = _reader(dataset, loader, options)
    length, order = whole(length, shuffle is not False) if sampler is None else sampled(sampler, length, shuffle)
    return Data(length, order, batch_size, bool(drop_last), read, _samples(dataset, sampler))


def _options_of(loader: Any) -> dict[str, Any]:
    """Return the arguments that a DataLoader was made with. Raises ``Misuse`` for one that reads in another way."""
    kind = type(loader)
    if kind.__iter__ is not data.DataLoader.__iter__:
        remedy = "give its data set: batches(loader.dataset, batch_size, collate_fn=...)"
        raise Misuse(f"a {kind.__name__}", "a DataLoader that is iterated as torch's own", remedy)
    if loader.batch_sampler is None:
        raise Misuse(
            "a DataLoader with batch_size=None",
            "a DataLoader that makes batches",
            "where each sample is a batch already: batches(dataset, 1, collate_fn=lambda samples: samples[0])",
        )
    taken = {name: getattr(loader, name) for name in OPTIONS if name != "sampler"}  # the sampler is in its batch sampler
    if taken["collate_fn"] is data.default_collate:
        del taken["collate_fn"]
    return taken


def _samples(dataset: Any, sampler: Any) -> int:
    """Return a digest of the indices by which samples of another data set are picked; 0 if none are."""
    if isinstance(dataset, data.ConcatDataset):
        return hash(tuple(_samples(each, None) for each in dataset.datasets)) % 2**53
    picked = [sampler.indices] if type(sampler) is data.SubsetRandomSampler else []
    while isinstance(dataset, data.Subset):
        picked.append(dataset.indices)
        dataset = dataset.dataset
    if not picked:
        return 0
    digest = blake2b(digest_size=6)
    for indices in picked:
        digest.update(np.asarray(indices, np.int64).tobytes())
    return 1 + int.from_bytes(digest.digest(), "big")


def _reader(dataset: Any, loader: Any, options: dict[str, Any]) -> tuple[int, Read]:
    """Return the data set's length, and how it is read.

    Tensors and arrays (or a tuple of them, or a ``TensorDataset``) are indexed directly, where no option asks for more;
    all else goes through a ``DataLoader`` with our order as its batch sampler.
    """
    columns = _columns(dataset, bare=loader is None)
    if columns is not None:
        prepared = options.get("num_workers") and options.get("worker_init_fn")
        if not (options.get("collate_fn") or options.get("pin_memory") or prepared):
            as_batch: Any = _only if _is_column(dataset) else tuple if loader is None else list
            pickers = [_picker(each) for each in columns]
            return len(columns[0]), lambda share, _: (as_batch([pick(one) for pick in pickers]) for one in share)
        dataset = dataset if _is_column(dataset) else data.StackDataset(*columns)
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise Misuse(
            f"a data set of type {type(dataset).__name__}",
            "tensors, arrays, or a map-style data set (with __len__ and __getitem__)",
        )
    if loader is None or not options.get("persistent_workers"):
        return len(dataset), _through_loader(dataset, options)
    if loader not in _kept:
        _kept[loader] = _through_loader(dataset, options)
    return len(dataset), _kept[loader]


def _columns(dataset: Any, bare: bool) -> list[Any] | None:
    """Return the tensors or arrays of the data set, or None. ``bare``: without a DataLoader, which reads samples."""
    if type(dataset) is data.TensorDataset:  # not a subclass, which may change what is read
        return list(dataset.tensors)
    if not bare:
        return None
    if _is_column(dataset):
        return [dataset]
    if not (isinstance(dataset, tuple | list) and dataset and all(_is_column(each) for each in dataset)):
        return None
    lengths = {len(column) for column in dataset}
    if len(lengths) > 1:
        raise Misuse(f"columns of {sorted(lengths)} samples", "columns of one length")
    return list(dataset)


class _Sampler:
    """The batch sampler of a DataLoader that reads one share after another."""

    def __init__(self) -> None:
        self.share: Share | None = None

    def __iter__(self) -> _Sampler:
        return self

    def __next__(self) -> list[int]:
        assert self.share is not None
        return list(map(int, next(self.share)))


def _through_loader(dataset: Any, options: dict[str, Any]) -> Read:
    """Read through a DataLoader. Its processes stay while it reads; with ``persistent_workers``, for the next time, too.

    It asks for indices ahead of training; if the share would have to wait, it stops, and the loader begins again.
    """
    kept: list[tuple[_Sampler, Any]] = []  # DataLoaders that are not being read from

    def read(share: Share, first: int) -> Iterator[Any]:
        sampler, loader = kept.pop() if kept else _loader(dataset, first, options)
        sampler.share = share
        try:
            while not share.over:
                yield from loader
        finally:
            sampler.share = None
            if options.get("persistent_workers"):
                kept.append((sampler, loader))

    return read


def _loader(dataset: Any, first: int, options: dict[str, Any]) -> tuple[_Sampler, Any]:
    """Return a DataLoader that reads, from pass ``first`` on, what its sampler is given."""
    # A DataLoader draws a number whenever it begins, with which it seeds its processes. With a generator of the script's
    # own, a run that is resumed in mid-pass, and so begins once more, would go on with other random numbers.
    given = options.get("generator")
    seed = ((torch.initial_seed() if given is None else given.initial_seed()) + 0x9E3779B9 * first) % 2**63
    own: dict[str, Any] = {"generator": torch.Generator().manual_seed(seed)}
    if options.get("num_workers"):
        own["persistent_workers"] = True
    sampler = _Sampler()
    return sampler, data.DataLoader(dataset, batch_sampler=cast("Any", sampler), **options | own)


def _is_column(value: Any) -> bool:
    return isinstance(value, torch.Tensor | np.ndarray) and value.ndim > 0


def _only(columns: list[Any]) -> Any:
    return columns[0]


def _picker(column: Any) -> Callable[[Indices], Any]:
    """Return the function that picks the samples of a batch: ``column[batch]``. Rows that lie one after the other are
    copied by ``index_select``, which takes about half as long as indexing."""
    if isinstance(column, np.ndarray):
        return lambda batch: column[batch]
    rows = type(column) is torch.Tensor and column.layout is torch.strided and column.is_contiguous()
    if not rows or column.device.type != "cpu" or column.requires_grad or column.is_quantized:
        return lambda batch: column[torch.from_numpy(batch).to(column.device)]

    def pick(batch: Indices) -> Any:
        indices = torch.from_numpy(batch)
        try:
            return column.index_select(0, indices)
        except IndexError:  # a sampler of the script's may count from the end
            return column[indices]

    return pick

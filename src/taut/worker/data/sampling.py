"""Which samples a pass deals, and in which order: of a whole data set, or as a sampler of torch's says.

An order depends only on the run's seed and the number of the pass, so that all workers agree on it. Hence a sampler of
the script's own, which draws by itself on every worker, is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch.utils import data

from taut.core.shuffle import order
from taut.errors import Misuse
from taut.worker.data.batches import Indices, Order

SEQUENTIAL = "sequential"
REMEDY = "taut deals each sample once per pass over all workers: give batches() the data set without the sampler"


def check_order(order: object, global_batch: int | None, shuffle: bool | None, island: bool) -> bool:
    """Return how ``shuffle`` is with this ``order``. Raises ``Misuse`` for what does not go with it."""
    if order != SEQUENTIAL:
        raise Misuse(f"batches(order={order!r})", f"{SEQUENTIAL!r}, or nothing", "shuffle=True or False for other orders")
    given = f"order={SEQUENTIAL!r}"
    if shuffle:
        raise Misuse(f"shuffle=True with {given}", "one of them", "a sequence is dealt in its order")
    if global_batch is not None:
        remedy = "a batch of a global batch may have samples of several places"
        raise Misuse(f"global_batch={global_batch} with {given}", "batch_size, of this worker's batches", remedy)
    if island:
        raise Misuse(f"{given} in an island", "a run without islands", "leave --island out")
    return False


def whole(length: int, shuffle: bool) -> tuple[int, Order]:
    """Deal all samples, once each."""
    return length, lambda seed, epoch: order(length, seed, epoch, shuffle)


def sampled(sampler: Any, length: int, shuffle: bool | None) -> tuple[int, Order]:
    """Return how many samples a pass over ``length`` of them has, and their order, as ``sampler`` says.

    ``shuffle``: the script's own argument, beside the sampler.
    """
    kind = type(sampler)
    if kind is data.SequentialSampler:
        return whole(length, bool(shuffle))
    if kind is data.RandomSampler and not sampler.replacement and sampler.num_samples == length:
        return whole(length, shuffle is not False)
    if kind is data.DistributedSampler:
        warnings.warn(
            "the DistributedSampler is not used: taut deals the data to the workers itself (set_epoch does nothing)",
            stacklevel=4,
        )
        return whole(length, sampler.shuffle if shuffle is None else shuffle)
    if kind is data.SubsetRandomSampler:
        return _subset(sampler.indices, length, shuffle is not False)
    if isinstance(sampler, Sequence | np.ndarray) or hasattr(sampler, "tolist"):
        return _subset(sampler, length, bool(shuffle))
    if shuffle is not None:
        raise Misuse(f"shuffle={shuffle} beside a {kind.__name__}", "one of the two", REMEDY)
    return _drawn(sampler, length)


def _drawn(sampler: Any, length: int) -> tuple[int, Order]:
    kind = type(sampler)
    if kind is data.RandomSampler:
        return _redrawn(sampler.num_samples, length, sampler.replacement)
    if kind is data.WeightedRandomSampler and sampler.replacement:
        return _weighted(sampler.num_samples, np.asarray(sampler.weights.tolist(), np.float64), length)
    raise Misuse(
        f"a {kind.__name__} as sampler",
        "a sampler of torch.utils.data, drawing with replacement where it has weights, or a list of indices",
        REMEDY,
    )


def _subset(given: Any, length: int, shuffle: bool) -> tuple[int, Order]:
    indices = np.asarray(given.tolist() if hasattr(given, "tolist") else list(given), np.int64)
    if indices.ndim != 1 or (len(indices) and not (-length <= indices.min() and indices.max() < length)):
        raise Misuse("a sampler of other indices", f"a list of indices below {length}, the length of the data set")
    return len(indices), lambda seed, epoch: indices[order(len(indices), seed, epoch, shuffle)]


def _redrawn(count: int, length: int, replacement: bool) -> tuple[int, Order]:

    def draw(seed: int, epoch: int) -> Indices:
        if replacement:
            return _rng(seed, epoch).integers(0, length, count)
        rounds = [np.random.Generator(np.random.PCG64([seed, epoch, one])) for one in range(-(-count // length))]
        return np.concatenate([rng.permutation(length) for rng in rounds])[:count].astype(np.int64)

    return count, draw


def _weighted(count: int, weights: Any, length: int) -> tuple[int, Order]:
    """Deal ``count`` samples, each drawn with a chance in proportion to its weight."""
    if len(weights) > length:
        raise Misuse(f"{len(weights)} weights", f"at most {length}, the length of the data set")
    ends, last = np.cumsum(weights), np.flatnonzero(weights)[-1]

    def draw(seed: int, epoch: int) -> Indices:
        found = np.searchsorted(ends, _rng(seed, epoch).random(count) * ends[-1], side="right")
        return np.asarray(np.minimum(found, last), np.int64)  # rounding must not go beyond the last sample with a weight

    return count, draw


def _rng(seed: int, epoch: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64([seed, epoch]))

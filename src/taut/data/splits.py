"""Splits of a labelled data set over clients, for experiments: alike, by shards of few labels, or by Dirichlet shares.

    iid          a random permutation, cut into parts of equal size
    shards:K     sorted by label, cut into K shards per client, which are dealt at random (McMahan et al. 2017: K = 2)
    dirichlet:A  of each label, client i gets the share p_i, p ~ Dirichlet(A, ..., A) (Hsu et al. 2019; Yurochkin et al.
                 2019): the smaller A, the fewer labels a client has, and the more unequal the parts are

Each is a partition: every sample belongs to exactly one client, and every client has at least one. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from taut.errors import Misuse
from taut.specs import did_you_mean

Indices = npt.NDArray[np.int64]
KINDS = ("iid", "shards", "dirichlet")
EXPECTED = "iid, shards:K (K shards per client) or dirichlet:A (A > 0)"


def split(labels: Any, clients: int, how: str = "iid", *, seed: int = 0) -> list[Indices]:
    """Return the indices of each client's samples, sorted.

    Arguments:
        labels: one whole number per sample: a list, an array or a tensor.
        clients: how many there are.
        how: ``iid``, ``shards:2`` or ``dirichlet:0.1``.
        seed: the same seed gives the same split, on every machine.

    >>> labels = [0, 1, 2, 3] * 25
    >>> parts = split(labels, 10, "shards:2", seed=7)
    >>> [len(part) for part in parts] == [10] * 10, sorted(np.concatenate(parts).tolist()) == list(range(100))
    (True, True)
    >>> [len(part) for part in split(labels, 3, "iid")]
    [34, 33, 33]
    """
    given = np.asarray(labels)
    kind, value = _read(how)
    if given.ndim != 1:
        raise Misuse(f"labels of the shape {given.shape}", "one label per sample")
    if isinstance(clients, bool) or not isinstance(clients, int) or clients < 1:
        raise Misuse(f"{clients!r} clients", "a whole number of at least 1")
    needed = clients * (int(value) if kind == "shards" else 1)
    if len(given) < needed:
        expected = f"at least {needed}, so that each has one" if kind != "shards" else f"at least {needed}, one per shard"
        raise Misuse(f"{len(given)} samples for {clients} clients", expected, "take fewer clients")
    rng = np.random.Generator(np.random.PCG64([seed % 2**64, clients]))
    cut: Callable[..., list[Indices]] = {"iid": _iid, "shards": _shards, "dirichlet": _dirichlet}[kind]
    return [np.sort(part) for part in cut(given, clients, value, rng)]


def _read(how: str) -> tuple[str, float]:
    """Return the kind of split, and its number."""
    kind, _, text = str(how).partition(":")
    if kind not in KINDS:
        raise Misuse(f"the split {how!r}", EXPECTED, did_you_mean(kind, KINDS))
    try:
        value = float(text) if text else float(kind == "iid")
    except ValueError:
        value = -1.0
    whole = kind != "shards" or value == int(max(0.0, value))
    if (kind == "iid" and text) or not 0.0 < value < 1e6 or not whole:
        raise Misuse(f"the split {how!r}", EXPECTED)
    return kind, value


def _iid(labels: npt.NDArray[Any], clients: int, _: float, rng: np.random.Generator) -> list[Indices]:
    return _equal(rng.permutation(len(labels)), clients)


def _shards(labels: npt.NDArray[Any], clients: int, each: float, rng: np.random.Generator) -> list[Indices]:
    shuffled = rng.permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    shards = _equal(by_label, clients * int(each))
    dealt = rng.permutation(len(shards)).reshape(clients, int(each))
    return [np.concatenate([shards[shard] for shard in mine]) for mine in dealt]


def _dirichlet(labels: npt.NDArray[Any], clients: int, alpha: float, rng: np.random.Generator) -> list[Indices]:
    parts: list[list[Indices]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        its = rng.permutation(np.flatnonzero(labels == label))
        ends = np.round(np.cumsum(_shares(clients, alpha, rng)) * len(its)).astype(np.int64)
        for part, piece in zip(parts, np.split(its, ends[:-1]), strict=True):
            part.append(piece)
    return _none_empty([np.concatenate(part).astype(np.int64) for part in parts])


def _shares(clients: int, alpha: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return shares that sum to 1. Where ``alpha`` is so small that all underflow, one client has everything."""
    shares = rng.gamma(alpha, size=clients)
    if not shares.sum():
        shares[rng.integers(clients)] = 1.0
    found: npt.NDArray[np.float64] = shares / shares.sum()
    return found


def _equal(indices: Indices, count: int) -> list[Indices]:
    return [part.astype(np.int64) for part in np.array_split(indices, count)]


def _none_empty(parts: Sequence[Indices]) -> list[Indices]:
    """Give every client without a sample one of the largest."""
    found = list(parts)
    for number, part in enumerate(found):
        if not len(part):
            largest = max(range(len(found)), key=lambda each: len(found[each]))
            found[number], found[largest] = found[largest][-1:], found[largest][:-1]
    return found

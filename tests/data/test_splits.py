"""Laws of the splits over clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from taut.data import split
from taut.errors import Misuse

HOW = st.one_of(
    st.just("iid"),
    st.integers(1, 4).map("shards:{}".format),
    st.floats(1e-9, 1e3).map("dirichlet:{!r}".format),
)


@given(st.lists(st.integers(0, 9), min_size=80, max_size=200), st.integers(1, 20), HOW, st.integers(0, 2**63))
def test_a_split_is_a_partition_in_which_nobody_is_without_samples(
    labels: list[int], clients: int, how: str, seed: int
) -> None:
    parts = split(labels, clients, how, seed=seed)
    assert len(parts) == clients
    assert min(map(len, parts)) >= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(labels)))
    again = split(np.array(labels), clients, how, seed=seed)
    assert all(np.array_equal(one, other) for one, other in zip(parts, again, strict=True))


@given(st.permutations(range(60)), st.integers(1, 10), st.integers(1, 4), st.integers(0, 99))
def test_a_client_has_no_more_blocks_of_the_sorted_labels_than_shards(
    labels: list[int], clients: int, shards: int, seed: int
) -> None:
    size = len(labels) // (clients * shards)
    for part in split(labels, clients, f"shards:{shards}", seed=seed):
        assert shards * size <= len(part) <= shards * (size + 1)
        its = np.sort(np.array(labels)[part])
        assert 1 + int((np.diff(its) > 1).sum()) <= shards


def test_two_shards_of_mnist_s_form_give_most_clients_two_digits() -> None:
    labels = np.repeat(np.arange(10), 600)
    counts = [len(set(labels[part].tolist())) for part in split(labels, 100, "shards:2", seed=1)]
    assert max(counts) == 2
    assert np.mean(counts) > 1.7


def test_a_small_alpha_makes_clients_differ_and_a_large_one_makes_them_alike() -> None:
    labels = torch.arange(5000) % 10
    spread = {}
    for alpha in (0.1, 1000.0):
        parts = split(labels, 20, f"dirichlet:{alpha}", seed=3)
        shares = [np.bincount(labels[torch.from_numpy(part)].numpy(), minlength=10) / len(part) for part in parts]
        spread[alpha] = float(np.abs(np.array(shares) - 0.1).mean())
    assert spread[0.1] > 0.1
    assert spread[1000.0] < 0.02


def test_another_seed_is_another_split() -> None:
    one, other = (split(range(100), 4, "iid", seed=seed) for seed in (0, 1))
    assert not np.array_equal(one[0], other[0])


@pytest.mark.parametrize(
    "how", ["", "shard:2", "shards", "shards:0", "shards:1.5", "dirichlet:-1", "dirichlet:x", "iid:3"]
)
def test_a_split_that_makes_no_sense_is_refused(how: str) -> None:
    with pytest.raises(Misuse, match="expected iid, shards:K"):
        split(range(100), 4, how)


def test_too_many_clients_and_labels_of_another_shape_are_refused() -> None:
    with pytest.raises(Misuse, match="3 samples for 4 clients: expected at least 4"):
        split([1, 2, 3], 4)
    with pytest.raises(Misuse, match="expected at least 8, one per shard"):
        split([1, 2, 3, 4], 4, "shards:2")
    with pytest.raises(Misuse, match="one label per sample"):
        split(np.zeros((4, 2)), 2)
    with pytest.raises(Misuse, match="0 clients"):
        split([1, 2], 0)

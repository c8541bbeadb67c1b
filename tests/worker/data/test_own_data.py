"""A worker's own data: all of it, in order of a seed, also after a resume in mid-pass; and what contradicts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import taut
from taut.core.messages import Statistics
from taut.errors import Misuse
from taut.supervisor.data.leases import Leases
from taut.supervisor.data.progress import progress
from taut.worker.data.batches import BatchPlan, Share
from taut.worker.data.own_data import OwnDealer
from taut.worker.data.sampling import whole

X = torch.arange(30.0).reshape(30, 1)


def share_of(dealer: OwnDealer, length: int, size: int, epochs: int) -> Share:
    first, until = dealer.passes(epochs)
    return Share(dealer, BatchPlan(length, size, first, until, True, whole(length, True)[1], False))


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 3), st.data())
def test_a_resumed_worker_goes_on_with_the_batch_after_the_last_one_that_it_trained_on(
    length: int, size: int, epochs: int, data: Any
) -> None:
    dealer = OwnDealer(None, seed=5)
    share = share_of(dealer, length, size, epochs)
    batches, made = [], data.draw(st.integers(0, epochs * -(-length // size) - 1))
    for _ in range(made):
        batches.append(next(share).tolist())
        share.trained()
    again = OwnDealer(None, seed=5)
    again.begin_at(*dealer.position())
    batches += [batch.tolist() for batch in share_of(again, length, size, epochs)]
    straight = [batch.tolist() for batch in share_of(OwnDealer(None, seed=5), length, size, epochs)]
    assert batches == straight
    assert sorted(one for batch in batches for one in batch) == sorted(epochs * list(range(length)))


def test_progress_counts_the_passes_over_own_data_and_of_leased_data_where_there_is_none() -> None:
    made = [Statistics(samples=30, own_length=20, own_passes=1, own_wanted=2), Statistics(samples=5, own_length=10)]
    both = progress(Leases(), 0, made)
    assert (both.epoch, both.epochs, both.done, both.total) == (0, 0, 25, 30), "one does not say how many it wants"
    leases = Leases()
    leases.request(0, epoch=0, length=10, batch=5, live_workers=1)
    assert progress(leases, 3, [Statistics(samples=5)]).left == 30


def joined() -> Any:
    model = torch.nn.Linear(1, 1)
    return taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1))


def test_a_run_of_one_takes_its_own_data_beside_other_data_and_says_how_much() -> None:
    with joined() as worker:
        own = worker.batches(X, 10, own=True, epochs=2)
        assert len(own) == 6
        for x in own:
            worker.step(worker.model(x).sum() * 0)
        for x in worker.batches(X, 10):
            worker.step(worker.model(x).sum() * 0)
        made = worker.statistics()
    assert (made.samples, made.own_length, made.own_passes, made.own_wanted) == (90, 30, 2, 2)


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (
            lambda worker: worker.batches(X, global_batch=10, own=True),
            "own=True with global_batch=10: expected batch_size",
        ),
        (lambda worker: worker.batches(X[:0], 10, own=True), "own=True with an empty data set on this worker"),
        (
            lambda worker: worker.batches(
                DataLoader(TensorDataset(X), 10, sampler=DistributedSampler(TensorDataset(X), 2, 0)), own=True
            ),
            "own=True with a DistributedSampler: expected a data set that is this worker's alone",
        ),
    ],
)
def test_what_shares_data_out_contradicts_own_data(ask: Callable[[Any], object], told: str) -> None:
    with joined() as worker, pytest.raises(Misuse, match=told):
        ask(worker)

"""A script with clients that runs by itself: all clients in each round, in this process."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset

import taut
from taut.errors import Misuse, NonFiniteLoss

PARTS = [torch.full((10 * (k + 1), 1), float(k)) for k in range(3)]


def test_all_clients_are_trained_and_the_model_is_their_mean() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    seen = []
    with taut.join(model, torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)) as worker:
        for round in worker.rounds(PARTS, 2):
            for client in round:
                seen.append((round.number, client.number))
                for x in client.batches(batch_size=10):
                    assert (x == client.number).all()
                    worker.step(-model(torch.ones(1)).sum())
        made = worker.statistics()
    assert seen == [(number, k) for number in range(2) for k in range(3)]
    assert (made.samples, made.own_passes, made.own_wanted) == (120, 2, 2)
    steps = {1: 1.0, 2: 1.0 + 1.9, 3: 1.0 + 1.9 + 2.71}  # by the momentum, which begins anew with each client
    mean = sum(n * steps[n] for n in steps) / 6
    assert model.weight.item() == pytest.approx(2 * mean, abs=1e-5)


def test_an_array_and_the_arrays_of_its_update_begin_anew_with_each_client() -> None:
    w, velocity = np.zeros(2, np.float32), np.zeros(2, np.float32)

    def update(w: np.ndarray, gradient: np.ndarray, lr: float) -> None:
        velocity[:] = 0.5 * velocity + gradient
        w -= lr * velocity

    with taut.join_vector(w, update=update, lr=1.0, state={"velocity": velocity}) as worker:
        for round in worker.rounds([1.0, 3.0], 1):
            for client in round:
                for _batch in client.batches(np.zeros((2, 1), np.float32), 1):
                    worker.step(np.full(2, -client.data, np.float32))
    assert w.tolist() == [5.0, 5.0], "the mean of 1 + 1.5 and 3 + 4.5"


def test_a_loop_that_is_left_in_a_round_keeps_the_rounds_before_it() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    with taut.join(model, torch.optim.SGD(model.parameters(), lr=1.0)) as worker:
        for round in worker.rounds(PARTS, 9):
            for client in round:
                for _batch in client.batches(batch_size=100):
                    worker.step(-model(torch.ones(1)).sum())
                if round.number == 2:
                    break
            if round.number == 2:
                break
    assert model.weight.item() == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ([], "worker.rounds with the data of 0 clients"),
        (lambda number: number, "worker.rounds with a function, in a script alone: expected to know how many clients"),
    ],
)
def test_what_is_refused(parts: object, told: str) -> None:
    model = torch.nn.Linear(1, 1)
    with taut.join(model, torch.optim.SGD(model.parameters(), lr=1.0)) as worker, pytest.raises(Misuse, match=told):
        worker.rounds(parts, 1)  # type: ignore[arg-type]


def test_a_client_without_a_sample_is_refused_by_its_number() -> None:
    model = torch.nn.Linear(1, 1)
    with taut.join(model, torch.optim.SGD(model.parameters(), lr=1.0)) as worker:
        client = next(next(worker.rounds([PARTS[0][:0]], 1)))
        with pytest.raises(Misuse, match="an empty data set on client 0: expected at least one sample"):
            client.batches(batch_size=1)


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.ones(25, 1))


def test_a_client_may_have_a_stream_of_unknown_length() -> None:
    model, counts = torch.nn.Linear(1, 1), []
    with taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1)) as worker:
        for client in next(worker.rounds([Stream(), PARTS[0]], 1)):
            for x in client.batches(batch_size=10, epochs=2):
                worker.step(model(x).mean())
            counts.append(client.samples)
    assert counts == [50, 20]


def test_a_model_cannot_grow_between_rounds() -> None:
    model = torch.nn.Linear(1, 1)
    with taut.join(model, torch.optim.SGD(model.parameters(), lr=1.0)) as worker:
        next(worker.rounds(PARTS, 1))
        larger = torch.nn.Linear(2, 1)
        with pytest.raises(Misuse, match="in a script with worker"):
            worker.grow(larger, torch.optim.SGD(larger.parameters(), lr=1.0))


def test_a_client_whose_loss_is_not_finite_can_be_dropped() -> None:
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    with taut.join(model, torch.optim.SGD(model.parameters(), lr=1.0)) as worker:
        for round in worker.rounds(PARTS, 2):
            for client in round:
                try:
                    for count, _batch in enumerate(client.batches(batch_size=10)):
                        factor = float("nan") if client.number == 2 and count == 1 else -1.0
                        worker.step(factor * model(torch.ones(1)).sum())
                except NonFiniteLoss:
                    client.drop()
    assert model.weight.item() == pytest.approx(2 * (1 * 1 + 2 * 2) / 3)

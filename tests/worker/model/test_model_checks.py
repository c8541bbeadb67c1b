"""What is refused at join, and what a script must not change after it."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from torch import nn

from taut.errors import Misuse
from taut.worker.model.model_checks import ModelGuard, WeightSample, check_model


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (nn.Linear(2, 2).requires_grad_(False), "trainable"),
        (nn.Linear(2, 2).double(), "float32"),
        (nn.Linear(2, 2, dtype=torch.complex64), "complex64: expected float32, bfloat16 or float16"),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta")), "one device"),
    ],
)
def test_models_that_cannot_work_are_refused(model: nn.Module, word: str) -> None:
    with pytest.raises(Misuse, match=word):
        check_model(model, sgd(model))


def test_only_what_the_optimizer_has_is_trained() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].bias.requires_grad_(False)
    assert check_model(model, sgd(model[1])) == [model[1].weight]


def test_a_second_optimizer_is_noticed_at_its_first_step() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    optimizer = sgd(model[1])
    guard = ModelGuard(model, optimizer, check_model(model, optimizer))
    model.load_state_dict(model.state_dict())  # that is no step
    guard.begin()
    with torch.no_grad():
        model[0].weight.add_(1.0)
    with pytest.raises(Misuse, match=r"'0\.weight'"):
        guard.check()


@pytest.mark.parametrize("size", [10, 4096, 1_000_000])
def test_a_sample_sees_weights_that_moved(size: int) -> None:
    vector = np.zeros(size, np.float32)
    sample = WeightSample(vector)
    sample.check()
    vector += 0.1
    with pytest.raises(Misuse, match="outside"):
        sample.check()
    sample.renew()
    sample.check()


def test_checking_costs_microseconds() -> None:
    """A step of a model with 100 tensors and 25 million weights takes tens of milliseconds: 1% of that is hundreds."""
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(50)))
    optimizer = sgd(model)
    guard, sample = ModelGuard(model, optimizer, list(model.parameters())), WeightSample(np.zeros(25_000_000, np.float32))
    taken_s = []
    for _ in range(20):
        began_s = time.perf_counter()
        guard.check()
        sample.check()
        sample.renew()
        taken_s.append(time.perf_counter() - began_s)
    assert min(taken_s) < 500e-6

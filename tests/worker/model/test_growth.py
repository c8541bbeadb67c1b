"""Growing a model, alone: what is carried over, what is new, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import taut
from taut.errors import Misuse
from taut.strategies.allreduce.final_average import FinalAverage
from taut.testing.worlds.method_world import MethodWorld
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.growth import Growth, NewValues, by_name

X = torch.randn(64, 6, generator=torch.Generator().manual_seed(1))


def small(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).to(dtype)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.01)


def train(worker: Any, model: nn.Module, passes: int = 1) -> None:
    for x in worker.batches(X, batch_size=8, epochs=passes):
        worker.step(model(x.to(next(model.parameters()).dtype)).float().square().mean())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_growth_to_the_same_shapes_changes_no_bit(dtype: torch.dtype) -> None:
    """Weights, masters of half precision, moments and batch-norm statistics go on as if nothing had happened."""

    def trained(grows: bool) -> nn.Module:
        torch.manual_seed(0)
        model: nn.Module = small(dtype)
        with taut.join(model, adam(model)) as worker:
            for _ in range(2):
                train(worker, model)
                if grows:
                    model = small(dtype)
                    worker.grow(model, adam(model))
        return model

    plain, grown = trained(False), trained(True)
    for name, tensor in plain.state_dict().items():
        assert torch.equal(tensor, grown.state_dict()[name]), name


def test_modules_that_both_models_hold_keep_weights_and_moments_under_other_names() -> None:
    body = small()
    optimizer = adam(body)
    with taut.join(body, optimizer) as worker:
        train(worker, body)
        before = copy.deepcopy(body.state_dict())
        moment = optimizer.state[body[0].weight]["exp_avg"].clone()
        model = nn.Sequential(nn.Linear(6, 6), body)
        worker.grow(model, adam(model))
        assert worker.model is model
        assert all(torch.equal(tensor, before[name]) for name, tensor in body.state_dict().items())
        assert torch.equal(worker.optimizer.state[body[0].weight]["exp_avg"], moment)
        assert model[0].weight not in worker.optimizer.state
        train(worker, model)


def test_a_function_carries_what_it_likes() -> None:
    """Widened to twice the units, with half the weight each: the same function (Net2Net)."""

    def widen(old: nn.Module, new: nn.Module) -> list[str]:
        with torch.no_grad():
            new[0].weight.copy_(old[0].weight.repeat(2, 1))  # type: ignore[index]
            new[0].bias.copy_(old[0].bias.repeat(2))  # type: ignore[index]
            new[1].weight.copy_(old[1].weight.repeat(1, 2) / 2)  # type: ignore[index]
            new[1].bias.copy_(old[1].bias)  # type: ignore[index]
        return [name for name, _ in new.named_parameters()]

    narrow, wide = (nn.Sequential(nn.Linear(6, width), nn.Linear(width, 2)) for width in (4, 8))
    with taut.join(narrow, adam(narrow)) as worker:
        train(worker, narrow)
        worker.grow(wide, adam(wide), carry=widen)
        torch.testing.assert_close(wide(X), narrow(X))
        train(worker, wide)


def test_another_optimizer_begins_anew() -> None:
    model, other = small(), small()
    with taut.join(model, adam(model)) as worker:
        train(worker, model)
        worker.grow(other, torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9))
        assert not worker.optimizer.state and torch.equal(other[0].weight, model[0].weight)


def test_misuse_is_told_before_anything_changes() -> None:
    model, other = small(), small()
    with taut.join(model, adam(model)) as worker:
        with pytest.raises(Misuse, match=r"the model that is trained already: expected another module"):
            worker.grow(model, adam(model))
        with pytest.raises(Misuse, match="an optimizer with a parameter of shape"):
            worker.grow(other, adam(model))
        with pytest.raises(Misuse, match=r"carry, which names 'head\.weight'"):
            worker.grow(other, adam(other), carry=lambda old, new: ["head.weight"])
        for _ in worker.batches(X, batch_size=8):
            with pytest.raises(Misuse, match="a call between two loops"):
                worker.grow(other, adam(other))
            break
        train(worker, model)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 6), st.booleans(), st.integers(0, 2**31))
def test_new_values_are_the_first_worker_s_and_carried_ones_the_mean(workers: int, averages: bool, seed: int) -> None:
    torch.manual_seed(seed)
    old = nn.Sequential(nn.Linear(3, 2))
    growths = []
    for _ in range(workers):
        model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
        mine = copy.deepcopy(old)
        if averages:
            nn.init.normal_(mine[0].weight)
        growth = Growth(mine, adam(mine), model, adam(model), list(model.parameters()))
        growth.apply("nearest")
        growths.append(growth)
    first = growths[0].model[1].weight.detach().clone()  # type: ignore[index]
    mean = torch.stack([each.old[0].weight.detach().double() for each in growths]).mean(0)  # type: ignore[index]
    values = [NewValues(each, averages, position) for position, each in enumerate(growths)]
    assert all(len(each.x) == (14 if averages else 6) + 1 for each in values)
    world = MethodWorld(FinalAverage(), [each.x for each in values])
    world.finish()
    for each, x in zip(values, world.vectors(), strict=True):
        each.x = np.asarray(x)
        each.put_back()
    vectors = [each.params.vector for each in growths if each.params is not None]
    assert all(np.array_equal(vector, vectors[0]) for vector in vectors)
    torch.testing.assert_close(growths[-1].model[1].weight.detach(), first)  # type: ignore[index]
    torch.testing.assert_close(growths[-1].model[0].weight.detach().double(), mean, rtol=1e-5, atol=1e-6)  # type: ignore[index]


def test_nothing_goes_round_where_nothing_is_new() -> None:
    old, new = small(), small()
    growth = Growth(old, adam(old), new, adam(new), list(new.parameters()), by_name)
    growth.apply("nearest", FlatParams(old))
    assert not NewValues(growth, averages=False, position=0).needed
    assert NewValues(growth, averages=True, position=0).needed

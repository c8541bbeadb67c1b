"""Parameters of half precision follow the flat float32 vector; optimizers, closures and scripts see one model."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import taut
from taut.errors import Misuse
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.master_weights import Rounding

HALVES = [torch.bfloat16, torch.float16]
OPTIMIZERS = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "foreach": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "lars": lambda p: taut.optim.LARS(p, lr=0.1),
}
X = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))


def network(dtype: torch.dtype) -> nn.Sequential:
    """Return a model of both precisions: norms are float32."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))
    model[0].to(dtype), model[3].to(dtype)
    return model


def loss_of(model: nn.Sequential) -> torch.Tensor:
    hidden = model[2](model[1](model[0](X.to(model[0].weight.dtype)).float()))
    return F.cross_entropy(model[3](hidden.to(model[3].weight.dtype)).float(), X[:, :3].argmax(1))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_optimizer_moves_float32_masters(name: str, dtype: torch.dtype) -> None:
    """Law: the masters take the steps that float32 weights take, given the gradients of the rounded ones."""
    model = network(dtype)
    wanted = [p.detach().float().clone().requires_grad_() for p in model.parameters()]
    reference, optimizer = OPTIMIZERS[name](wanted), OPTIMIZERS[name](model.parameters())
    params = FlatParams(model)
    params.masters.attach(optimizer)
    for _ in range(12):
        optimizer.zero_grad()
        loss_of(model).backward()
        for each, own in zip(wanted, model.parameters(), strict=True):
            each.grad = own.grad.clone()
            assert own.grad.dtype == torch.float32
        optimizer.step()
        reference.step()
        masters = torch.cat([each.detach().flatten() for each in wanted])
        assert torch.equal(params.tensor, masters)
        for own, each in zip(model.parameters(), wanted, strict=True):
            assert torch.equal(own, each.to(own.dtype))
    assert {p.dtype for p in model.parameters()} == {dtype, torch.float32}
    states = [value for state in optimizer.state.values() for value in state.values()]
    assert all(value.dtype == torch.float32 for value in states if isinstance(value, torch.Tensor))


def test_steps_smaller_than_the_rounding_add_up() -> None:
    layer = nn.Linear(1, 1, bias=False).bfloat16()
    nn.init.ones_(layer.weight)
    optimizer = torch.optim.SGD(layer.parameters(), lr=2.0**-12)
    with taut.join(layer, optimizer) as worker:
        for _ in range(64):
            worker.step(layer(torch.ones(1, 1, dtype=torch.bfloat16)).float().sum())
    assert layer.weight.item() == 1 - 64 * 2.0**-12, "each step alone is rounded away: 2^-12 of 1, with 8 digits"


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_changes_by_hand_are_taken_over(rounding: Rounding) -> None:
    model = network(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    params = FlatParams(model, rounding=rounding)
    params.masters.attach(optimizer)
    loss_of(model).backward()
    optimizer.step()
    before = params.tensor.clone()
    with torch.no_grad():
        model[0].weight[0, 0] = 3.0
    params.masters.take_changes()
    assert params.tensor[0] == 3.0
    assert torch.equal(params.tensor[1:], before[1:]), "the others keep the digits that bfloat16 does not have"
    model[3].weight.data.fill_(0.5)  # a write that no version counts
    params.masters.take_changes()
    assert params.tensor[-27:-3].unique().tolist() == [0.5]
    model.load_state_dict(network(torch.bfloat16).state_dict())
    optimizer.step()
    assert (model[0].weight - network(torch.bfloat16)[0].weight).abs().max() < 1e-2


def test_a_hook_of_the_script_moves_the_masters() -> None:
    model = network(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    params = FlatParams(model)
    params.masters.attach(optimizer)
    optimizer.register_step_post_hook(lambda *_: [p.data.clamp_(-0.1, 0.1) for p in model.parameters()])
    loss_of(model).backward()
    optimizer.step()
    assert params.tensor.abs().max() <= 0.1 + 1e-7


def test_closures_compute_with_the_rounded_weights() -> None:
    model = network(torch.bfloat16)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=8)
    params = FlatParams(model)
    params.masters.attach(optimizer)
    seen = set()

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        seen.add(model[0].weight.dtype)
        return loss

    first = closure().item()
    for _ in range(4):
        optimizer.step(closure)
    assert seen == {torch.bfloat16} and loss_of(model).item() < 0.7 * first


def test_the_optimizers_state_survives_saving_and_loading() -> None:
    model = network(torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    params = FlatParams(model)
    params.masters.attach(optimizer)
    loss_of(model).backward()
    optimizer.step()
    kept = copy.deepcopy(optimizer.state_dict())
    optimizer.step()
    optimizer.load_state_dict(kept)
    assert torch.equal(optimizer.state[model[0].weight]["exp_avg"], kept["state"][0]["exp_avg"])
    assert model[0].weight.dtype == torch.bfloat16
    optimizer.step()


def test_a_state_made_before_join_becomes_float32() -> None:
    model = network(torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss_of(model).backward()
    optimizer.step()
    params = FlatParams(model)
    params.masters.attach(optimizer)
    assert optimizer.state[model[0].weight]["exp_avg"].dtype == torch.float32
    optimizer.step()


@pytest.mark.parametrize("dtype", HALVES)
def test_stochastic_rounding_follows_from_the_masters_and_the_seed(dtype: torch.dtype) -> None:
    def rounded(seed: int) -> torch.Tensor:
        layer = nn.Linear(1000, 10, bias=False).to(dtype)
        params = FlatParams(layer, rounding="stochastic")
        params.masters.seed = seed
        params.load((torch.linspace(-1.0, 1.0, 10_000)).numpy())
        params.masters.refresh()
        exact = params.tensor.view(10, 1000)
        assert (layer.weight.float() - exact).abs().max() <= exact.abs().max() * torch.finfo(dtype).eps
        assert (layer.weight.float() - exact).mean().abs() < 0.02 * torch.finfo(dtype).eps
        return layer.weight.detach().clone()

    assert torch.equal(rounded(1), rounded(1)) and not torch.equal(rounded(1), rounded(2))


def test_a_parameter_keeps_its_memory_format() -> None:
    model = nn.Conv2d(3, 4, 2).to(torch.bfloat16, memory_format=torch.channels_last)
    before, strides = model.weight.detach().clone(), model.weight.stride()
    params = FlatParams(model)
    assert torch.equal(model.weight, before) and model.weight.stride() == strides
    params.tensor.mul_(2.0)
    params.masters.stale = True
    params.masters.refresh()
    assert torch.equal(model.weight, 2 * before)


def test_sparse_gradients_move_masters() -> None:
    table = nn.Embedding(5, 2, sparse=True).bfloat16()
    before = table.weight.detach().clone()
    with taut.join(table, torch.optim.SGD(table.parameters(), lr=1.0)) as worker:
        worker.step(table(torch.tensor([1, 3])).float().sum())
    assert (table.weight != before).any(1).tolist() == [False, True, False, True, False]


def test_a_model_is_joined_again() -> None:
    model = network(torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(2):
        with taut.join(model, optimizer) as worker:
            worker.step(loss_of(model))
            worker.step(loss_of(model))


def test_an_unknown_rounding_is_refused() -> None:
    model = network(torch.bfloat16)
    with pytest.raises(Misuse, match="'nearest' or 'stochastic'"):
        taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1), rounding="up")  # type: ignore[arg-type]

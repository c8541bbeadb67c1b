"""The flat vector holds the trainable parameters; everything else of the model's state travels beside it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from taut.codecs import parse
from taut.errors import Misuse
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.replica import Replica
from taut.worker.model.vector_views import Gradients


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.norm = nn.BatchNorm1d(4)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.frozen(self.embed(x))))


def test_parameters_are_views_that_optimizers_move() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    before = [p.detach().clone() for p in model.parameters()]
    params = FlatParams(model)
    assert torch.equal(params.tensor, torch.cat([p.flatten() for p in before]))
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    moved = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.equal(torch.from_numpy(params.vector), moved)
    assert not torch.equal(moved, torch.cat([p.flatten() for p in before]))


def test_tied_and_frozen_parameters_and_buffers() -> None:
    model = Tied()
    params = FlatParams(model)
    assert params.size == 7 * 4 + 4 + 4  # the tied matrix once, the norm's scale and shift
    parts = {spec.name: spec.part for spec in params.specs()}
    assert parts["frozen.weight"] == "frozen"
    assert parts["norm.running_mean"] == "buffer"
    params.vector[:] = 2.0
    state = params.state_dict()
    assert torch.equal(state["embed.weight"], state["head.weight"])
    assert state["head.weight"].unique().tolist() == [2.0]


def test_still_state_goes_from_donor_to_joiner() -> None:
    torch.manual_seed(1)
    donor, joiner = Tied(), Tied()
    donor(torch.arange(7))
    one, other = FlatParams(donor), FlatParams(joiner)
    other.load_still(one.still_bytes())
    assert torch.equal(donor.frozen.weight, joiner.frozen.weight)
    assert torch.equal(donor.norm.running_var, joiner.norm.running_var)
    assert joiner.norm.num_batches_tracked.item() == 1
    with pytest.raises(Misuse, match="bytes of state"):
        other.load_still(b"short")


def test_buffers_round_trip_as_float32() -> None:
    model = Tied()
    params = FlatParams(model)
    model.norm.running_mean.fill_(0.25)
    data = params.buffer_bytes()
    model.norm.running_mean.zero_()
    params.load_buffers(data)
    assert model.norm.running_mean.tolist() == [0.25] * 4


def test_a_parameter_keeps_its_memory_format() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 2), nn.Conv2d(4, 2, 1)).to(memory_format=torch.channels_last)
    before, strides = [p.detach().clone() for p in model.parameters()], [p.stride() for p in model.parameters()]
    params = FlatParams(model)
    assert [p.stride() for p in model.parameters()] == strides
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    assert params.shapes[0] == (4, 2, 2, 3), "as it lies in memory, for codecs that see matrices"
    assert params.vector[:48].tolist() == before[0].permute(0, 2, 3, 1).flatten().tolist()
    model(torch.randn(1, 3, 5, 5)).sum().backward()
    gradients = Gradients(params)
    gradients.fetch()
    wanted = model[0].weight.grad.clone()
    gradients.x *= 2
    gradients.put_back()
    assert torch.equal(model[0].weight.grad, 2 * wanted)
    assert params.specs()[0].layout == "0,2,3,1"
    assert params.specs()[0] != FlatParams(nn.Sequential(nn.Conv2d(3, 4, 2))).specs()[0], (
        "others must have the same order"
    )


def test_what_no_optimizer_has_is_left_alone() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    params = FlatParams(model, list(model[1].parameters()))
    before = model[0].weight.detach().clone()
    Replica(params, parse("tether")).found(workers=2)
    assert torch.equal(model[0].weight, before), "not even rounded to the grid"
    assert {name: part for name, _, part in params.named()}["0.weight"] == "frozen"

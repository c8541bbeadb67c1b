"""The arena holds the trainable parameters; everything else of the model's state travels beside it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from taut.errors import Misuse
from taut.worker.arena import Arena


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
    arena = Arena(model)
    assert torch.equal(arena.tensor, torch.cat([p.flatten() for p in before]))
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    moved = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert torch.equal(torch.from_numpy(arena.vector), moved)
    assert not torch.equal(moved, torch.cat([p.flatten() for p in before]))


def test_tied_and_frozen_parameters_and_buffers() -> None:
    model = Tied()
    arena = Arena(model)
    assert arena.size == 7 * 4 + 4 + 4  # the tied matrix once, the norm's scale and shift
    parts = {spec.name: spec.part for spec in arena.specs()}
    assert parts["frozen.weight"] == "frozen"
    assert parts["norm.running_mean"] == "buffer"
    arena.vector[:] = 2.0
    state = arena.state_dict()
    assert torch.equal(state["embed.weight"], state["head.weight"])
    assert state["head.weight"].unique().tolist() == [2.0]


def test_still_state_goes_from_donor_to_joiner() -> None:
    torch.manual_seed(1)
    donor, joiner = Tied(), Tied()
    donor(torch.arange(7))
    one, other = Arena(donor), Arena(joiner)
    other.load_still(one.still_bytes())
    assert torch.equal(donor.frozen.weight, joiner.frozen.weight)
    assert torch.equal(donor.norm.running_var, joiner.norm.running_var)
    assert joiner.norm.num_batches_tracked.item() == 1
    with pytest.raises(Misuse, match="bytes of state"):
        other.load_still(b"short")


def test_buffers_round_trip_as_float32() -> None:
    model = Tied()
    arena = Arena(model)
    model.norm.running_mean.fill_(0.25)
    data = arena.buffer_bytes()
    model.norm.running_mean.zero_()
    arena.load_buffers(data)
    assert model.norm.running_mean.tolist() == [0.25] * 4


@pytest.mark.parametrize(
    ("model", "word"),
    [
        (nn.Linear(2, 2).requires_grad_(False), "trainable"),
        (nn.Linear(2, 2).double(), "float32"),
        (nn.Linear(2, 2, dtype=torch.bfloat16), "autocast"),
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="meta")), "one device"),
    ],
)
def test_models_that_cannot_work_are_refused(model: nn.Module, word: str) -> None:
    with pytest.raises(Misuse, match=word):
        Arena(model)

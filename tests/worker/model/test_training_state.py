"""What a newcomer takes over beside the weights: all of it, to the last bit, or a refusal that names what differs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from taut.errors import MalformedMessage, Misuse
from taut.worker.model.training_state import load_training, pack_training
from taut.worker.optimizer.joined import joined

Make = Callable[..., torch.optim.Optimizer]
OPTIMIZERS: dict[str, tuple[Make, dict[str, object]]] = {
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "Adam": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 0.01, "centered": True}),
    "Adagrad": (torch.optim.Adagrad, {"lr": 0.1}),
    "Adafactor": (torch.optim.Adafactor, {"lr": 0.1}),
}


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def trained(name: str, steps: int = 3) -> tuple[nn.Module, torch.optim.Optimizer]:
    net = model()
    make, settings = OPTIMIZERS[name]
    optimizer = make(net.parameters(), **settings)
    for number in range(steps):
        step(net, optimizer, number)
    return net, optimizer


def step(net: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed))
    optimizer.zero_grad()
    net(x).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_next_steps_are_the_same_to_the_last_bit(name: str) -> None:
    net, optimizer = trained(name)
    other = model()
    other.load_state_dict(net.state_dict())
    fresh = OPTIMIZERS[name][0](other.parameters(), **OPTIMIZERS[name][1])
    load_training(pack_training(optimizer, {}), fresh, {})
    for seed in range(10, 14):
        step(net, optimizer, seed)
        step(other, fresh, seed)
        assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))


def test_settings_are_the_givers_and_rates_ones_own() -> None:
    _, optimizer = trained("AdamW")
    fresh = torch.optim.AdamW(model().parameters(), lr=0.5, weight_decay=0.7)
    assert not load_training(pack_training(optimizer, {}), fresh, {})
    assert fresh.param_groups[0]["lr"] == 0.5
    assert fresh.param_groups[0]["weight_decay"] == 0.1


def test_the_position_in_the_schedule_comes_with_the_scheduler() -> None:
    net, optimizer = trained("SGD")
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    step(net, optimizer, 0)
    for _ in range(5):
        schedule.step()
    data = pack_training(optimizer, {"schedule": schedule})
    _, fresh = trained("SGD", steps=1)
    mine = torch.optim.lr_scheduler.StepLR(fresh, 2)
    assert load_training(data, fresh, {"schedule": mine})
    assert mine.last_epoch == 5 and fresh.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]
    mine.step()  # a loop over epochs, on the way to the first batch
    load_training(data, fresh, {"schedule": mine}, again=True)
    assert mine.last_epoch == 5 and fresh.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


def test_another_optimizer_is_named() -> None:
    data = pack_training(trained("Adam")[1], {})
    with pytest.raises(Misuse, match="the optimizer SGD: expected Adam"):
        load_training(data, trained("SGD")[1], {})
    net = model()
    groups = [{"params": net[0].parameters()}, {"params": net[2].parameters()}]
    with pytest.raises(Misuse, match=r"groups of \[2, 2\] parameters: expected \[4\]"):
        load_training(data, torch.optim.Adam(groups), {})
    smaller = torch.optim.Adam([nn.Parameter(torch.zeros(1)) for _ in range(4)])
    with pytest.raises(Misuse, match="'exp_avg' of parameter 0"):
        load_training(data, smaller, {})
    with pytest.raises(Misuse, match=r"also=.'schedule'"):
        load_training(data, trained("Adam")[1], {"schedule": None})


PACKED = pack_training(trained("Adam")[1], {})


@settings(max_examples=some(150), deadline=None)
@given(data=st.binary(max_size=64) | st.integers(0, len(PACKED)).map(lambda n: PACKED[:n]), at=st.integers(0, 800))
def test_what_is_no_state_is_refused(data: bytes, at: int) -> None:
    for tried in (data, PACKED[:at] + bytes([PACKED[at] ^ 1]) + PACKED[at + 1 :]):
        optimizer = trained("Adam", steps=0)[1]
        try:
            load_training(tried, optimizer, {})
        except (MalformedMessage, Misuse):
            continue
        assert tried is not data or data == PACKED


def test_several_optimizers_go_as_one() -> None:
    def made() -> tuple[nn.Module, torch.optim.Optimizer]:
        model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
        return model, joined([torch.optim.Adam(model[0].parameters()), torch.optim.SGD(model[1].parameters(), 0.1, 0.9)])

    (giver, optimizer), (taker, fresh) = made(), made()
    giver(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    load_training(pack_training(optimizer, {}), fresh, {})
    pairs = list(zip(giver.parameters(), taker.parameters(), strict=True))
    kept = [(optimizer.state[mine], fresh.state[theirs]) for mine, theirs in pairs]
    assert [sorted(state) for _, state in kept] == 2 * [["exp_avg", "exp_avg_sq", "step"]] + 2 * [["momentum_buffer"]]
    assert all(torch.equal(mine[name], theirs[name]) for mine, theirs in kept for name in mine)
    with pytest.raises(Misuse, match="JoinedOptimizers"):
        load_training(pack_training(optimizer, {}), torch.optim.SGD(taker.parameters(), 0.1), {})

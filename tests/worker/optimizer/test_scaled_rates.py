"""Learning rates that are scaled for one step: the script, its scheduler and its checkpoints never see it."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from taut.worker.optimizer.scaled_rates import ScaledRates

FACTORS = st.lists(st.floats(0.01, 100.0), max_size=12)


def made(tensor: bool = False) -> torch.optim.Optimizer:
    one, other = torch.zeros(1, requires_grad=True), torch.zeros(1, requires_grad=True)
    lr = torch.tensor(0.1) if tensor else 0.1
    return torch.optim.Adam([{"params": [one]}, {"params": [other], "lr": 0.03}], lr=lr)


def rates(optimizer: torch.optim.Optimizer) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


@given(FACTORS, st.booleans())
def test_after_a_step_the_rates_and_the_state_are_the_scripts_own(factors: list[float], tensor: bool) -> None:
    optimizer = made(tensor)
    scaled, before = ScaledRates(optimizer), copy.deepcopy(optimizer.state_dict())
    for factor in factors:
        scaled.scale(factor)
        assert rates(optimizer) == pytest.approx([0.1 * factor, 0.03 * factor])
        scaled.restore()
        assert optimizer.state_dict() == before


@given(FACTORS)
def test_a_scheduler_moves_what_it_would_without_scaling(factors: list[float]) -> None:
    plain, optimizer = made(), made()
    schedulers = [torch.optim.lr_scheduler.ExponentialLR(each, 0.9) for each in (plain, optimizer)]
    scaled = ScaledRates(optimizer)
    for factor in factors:
        scaled.scale(factor)
        assert rates(optimizer) == [rate * factor for rate in rates(plain)]
        for each in (plain, optimizer):
            each.step()
        scaled.restore()
        for scheduler in schedulers:
            scheduler.step()
        assert schedulers[0].state_dict() == schedulers[1].state_dict() and rates(plain) == rates(optimizer)


def test_a_step_that_failed_leaves_no_scaling_behind() -> None:
    optimizer = made()
    scaled = ScaledRates(optimizer)
    scaled.scale(2.0)
    scaled.scale(2.0)
    assert rates(optimizer) == [0.2, 0.06]

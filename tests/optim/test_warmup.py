"""The rate rises along the line, hands over without a jump, and survives a restart."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    OneCycleLR,
    ReduceLROnPlateau,
    SequentialLR,
    StepLR,
)

from taut.errors import Misuse
from taut.optim import Warmup, linear_scaling, sqrt_scaling


def sgd(*rates, **more):
    groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in rates]
    return torch.optim.SGD(groups, lr=1.0, **more)


def rates(optimizer, scheduler, steps):
    """The rate of each group at each of ``steps`` steps."""
    seen = []
    for _ in range(steps):
        seen.append([float(group["lr"]) for group in optimizer.param_groups])
        assert [float(lr) for lr in scheduler.get_last_lr()] == seen[-1]
        optimizer.step()
        scheduler.step()
    return seen


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 60), st.floats(1e-4, 50.0), st.integers(1, 64), st.floats(0.01, 1.0))
def test_the_rate_follows_the_line(steps, lr, workers, part):
    for options, start in (
        ({"workers": workers}, lr / workers),
        ({"start": part * lr}, part * lr),
        ({}, lr / (steps + 1)),
    ):
        optimizer = sgd(lr)
        warmup = Warmup(optimizer, steps, **options)
        seen = [each for (each,) in rates(optimizer, warmup, steps + 3)]
        line = [start + (lr - start) * t / steps for t in range(steps)] + [lr] * 3
        assert seen == pytest.approx(line, rel=1e-12)
        assert seen[steps:] == [lr] * 3, "the full rate is reached exactly, and kept"


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 6), st.integers(0, 20))
def test_epochs_are_turned_into_steps(epochs, steps_per_epoch):
    assert Warmup(sgd(1.0), epochs=epochs, steps_per_epoch=steps_per_epoch).steps == round(epochs * steps_per_epoch)


def test_groups_keep_their_proportions():
    optimizer = sgd(1.0, 0.1)
    for one, other in rates(optimizer, Warmup(optimizer, 7, workers=4), 10):
        assert one == pytest.approx(10 * other)


AFTER = [
    lambda o: ExponentialLR(o, gamma=0.9),
    lambda o: StepLR(o, step_size=3, gamma=0.1),
    lambda o: CosineAnnealingLR(o, T_max=20),
    lambda o: ConstantLR(o, factor=0.5, total_iters=4),
    lambda o: OneCycleLR(o, max_lr=2.0, total_steps=30),
    lambda o: SequentialLR(o, [ConstantLR(o, factor=1.0), ExponentialLR(o, gamma=0.5)], milestones=[5]),
    lambda o: ChainedScheduler([ExponentialLR(o, gamma=0.9), StepLR(o, step_size=3)]),
]


@pytest.mark.parametrize("steps", [0, 1, 6])
@pytest.mark.parametrize("make", AFTER)
def test_the_next_scheduler_runs_as_it_would_alone(make, steps):
    alone, warmed = sgd(0.8, 0.2, momentum=0.9), sgd(0.8, 0.2, momentum=0.9)
    expected = rates(alone, make(alone), 15)
    warmup = Warmup(warmed, steps, workers=4, after=make(warmed))
    seen = rates(warmed, warmup, steps + 15)
    assert seen[steps:] == expected, "nothing skipped, nothing twice"
    assert seen[:steps] == pytest.approx(
        [pytest.approx([r * (1 - 0.75 * (1 - t / steps)) for r in expected[0]]) for t in range(steps)]
    )


@pytest.mark.parametrize("at", [0, 3, 6, 7, 10])
@pytest.mark.parametrize("make", [None, *AFTER])
def test_a_saved_warmup_goes_on_as_if_nothing_happened(make, at):
    def fresh():
        optimizer = sgd(0.8, 0.2, momentum=0.9)
        return optimizer, Warmup(optimizer, 6, workers=4, after=make(optimizer) if make else None)

    optimizer, warmup = fresh()
    rates(optimizer, warmup, at)
    saved = copy.deepcopy([optimizer.state_dict(), warmup.state_dict()])
    again, resumed = fresh()
    again.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    again._opt_called = True  # torch warns of a scheduler that is stepped before its optimizer
    assert rates(again, resumed, 12) == rates(optimizer, warmup, 12)
    assert resumed.finished


def test_a_state_of_another_shape_is_refused():
    optimizer = sgd(1.0)
    with_after = Warmup(optimizer, 3, after=StepLR(optimizer, 2))
    with pytest.raises(Misuse, match="with no `after`: expected one with an `after`"):
        with_after.load_state_dict(Warmup(sgd(1.0), 3).state_dict())


@pytest.mark.parametrize("first", [True, False])
def test_it_chains(first):
    """In a ChainedScheduler both factors act, whichever comes first."""
    optimizer = sgd(1.0)
    parts = [Warmup(optimizer, 5, workers=10), ExponentialLR(optimizer, gamma=0.9)]
    seen = rates(optimizer, ChainedScheduler(parts if first else parts[::-1]), 9)
    expected = [(0.1 + 0.9 * min(t, 5) / 5) * 0.9**t for t in range(9)]
    assert [each for (each,) in seen] == pytest.approx(expected)


@pytest.mark.parametrize("index", [0, 1])
def test_it_takes_its_turn_in_a_sequence(index):
    optimizer = sgd(1.0)
    parts = [Warmup(optimizer, 4, workers=2), ConstantLR(optimizer, factor=0.3, total_iters=100)]
    seen = rates(optimizer, SequentialLR(optimizer, parts if index == 0 else parts[::-1], milestones=[4]), 9)
    line = [0.5 + 0.5 * t / 4 for t in range(5)]
    expected = [*line[:4], *[0.3] * 5] if index == 0 else [*[0.3] * 4, *line]
    assert [each for (each,) in seen] == pytest.approx(expected)


def test_a_rate_may_be_a_tensor_and_stays_one():
    w = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([w], lr=torch.tensor(1.0), foreach=False)
    held = optimizer.param_groups[0]["lr"]
    seen = rates(optimizer, Warmup(optimizer, 4, workers=2), 6)
    assert [each for (each,) in seen] == pytest.approx([0.5, 0.625, 0.75, 0.875, 1.0, 1.0])
    assert optimizer.param_groups[0]["lr"] is held


def test_finished_says_when_the_full_rate_is_reached():
    optimizer = sgd(1.0)
    warmup, seen = Warmup(optimizer, 2), []
    for _ in range(4):
        seen.append((warmup.finished, optimizer.param_groups[0]["lr"] == 1.0))
        optimizer.step()
        warmup.step()
    assert seen == [(False, False), (False, False), (True, True), (True, True)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "either steps, or epochs"),
        ({"steps": 3, "epochs": 1, "steps_per_epoch": 3}, "either steps, or epochs"),
        ({"epochs": 5}, "steps_per_epoch=len"),
        ({"steps": 3, "steps_per_epoch": 3}, "either steps, or epochs"),
        ({"steps": -1}, "steps=-1.*>= 0"),
        ({"steps": 2.5}, "steps=2.5.*whole number"),
        ({"steps": True}, "steps=True.*whole number"),
        ({"epochs": -1, "steps_per_epoch": 3}, "epochs=-1"),
        ({"epochs": math.nan, "steps_per_epoch": 3}, "epochs=nan"),
        ({"epochs": 1, "steps_per_epoch": -3}, "steps_per_epoch=-3"),
        ({"steps": 3, "workers": 0}, "workers=0.*at least 1"),
        ({"steps": 3, "workers": 2, "start": 0.1}, "one of the two"),
        ({"steps": 3, "start": 0.0}, "start=0.0.*over 0"),
        ({"steps": 3, "start": -0.1}, "start=-0.1"),
        ({"steps": 3, "start": 1.5}, "start=1.5.*at most the optimizer's, 1"),
        ({"steps": 3, "start": math.nan}, "start=nan"),
        ({"steps": 3, "after": "cosine"}, "after=str"),
        ({"steps": 3, "after": StepLR(sgd(1.0), 2)}, "another optimizer"),
    ],
)
def test_what_cannot_work_is_refused(options, told):
    with pytest.raises(Misuse, match=told):
        Warmup(sgd(1.0), **options)


def test_a_scheduler_that_wants_a_metric_is_refused():
    optimizer = sgd(1.0)
    with pytest.raises(Misuse, match=r"ReduceLROnPlateau.*warmup\.finished"):
        Warmup(optimizer, 3, after=ReduceLROnPlateau(optimizer))


@given(st.floats(0, 10), st.integers(1, 2**20), st.integers(1, 2**12), st.integers(1, 64))
def test_scaling_rules(base, batch, reference, times):
    assert linear_scaling(base, reference, reference) == sqrt_scaling(base, reference, reference) == base
    assert linear_scaling(base, times * batch, reference) == pytest.approx(times * linear_scaling(base, batch, reference))
    assert sqrt_scaling(base, times**2 * batch, reference) == pytest.approx(times * sqrt_scaling(base, batch, reference))


def test_scaling_as_published():
    assert linear_scaling(0.1, 8192) == pytest.approx(3.2)
    assert sqrt_scaling(1e-3, 1024) == pytest.approx(2e-3)


@pytest.mark.parametrize("rule", [linear_scaling, sqrt_scaling])
@pytest.mark.parametrize(
    "wrong", [(-0.1, 64), (math.nan, 64), (math.inf, 64), (0.1, 0), (0.1, -64), (0.1, 64.5), (0.1, True), (0.1, 64, 0)]
)
def test_scaling_refuses(rule, wrong):
    with pytest.raises(Misuse, match=r"(base_lr|batch_size|reference)="):
        rule(*wrong)

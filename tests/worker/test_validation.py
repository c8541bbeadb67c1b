"""The script's own judgement of its model: scores, recalibration, and what they may break."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import taut
from taut.errors import FinishFailed, Misuse
from taut.worker.validation import Validation


def model_with_norm() -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(), nn.Linear(2, 1))


def test_the_function_sees_the_model_as_it_will_be_used_and_the_modes_come_back() -> None:
    model = model_with_norm()
    model[0].eval()  # frozen by the user
    seen = []

    def validate(given: nn.Module) -> torch.Tensor:
        seen.append((given.training, given[1].training, torch.is_grad_enabled()))  # type: ignore[index]
        return torch.tensor(0.25)

    assert Validation(validate).score(model) == 0.25
    assert seen == [(False, False, False)]
    assert (model.training, model[0].training, model[1].training) == (True, False, True)
    assert torch.is_grad_enabled()


def test_what_the_function_raises_is_kept_and_names_it() -> None:
    def broken(model: nn.Module) -> float:
        raise ZeroDivisionError("no samples")

    given = Validation(broken)
    model = model_with_norm()
    assert given.score(model) is None
    assert model.training
    with pytest.raises(FinishFailed, match=r"broken.*test_validation.*ZeroDivisionError: no samples") as raised:
        given.raise_failure()
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_a_score_that_is_no_number() -> None:
    given = Validation(lambda model: "good")
    assert given.score(nn.Linear(1, 1)) is None
    assert "'good': expected a number" in given.note()
    assert math.isnan(Validation(lambda model: math.nan).score(nn.Linear(1, 1)) or 0.0)


@pytest.mark.parametrize("as_function", [False, True])
def test_recalibration_takes_batches_or_a_function_that_gives_them(as_function: bool) -> None:
    batches = [torch.full((4, 2), 3.0), torch.full((4, 2), 5.0)]
    model = model_with_norm()
    assert Validation(recalibrate=(lambda: iter(batches)) if as_function else batches).recalibrated(model)
    assert model[0].running_mean.tolist() == [4.0, 4.0]  # type: ignore[union-attr]
    assert not Validation(recalibrate=batches).recalibrated(nn.Linear(2, 1)), "there was nothing to recalibrate"


def test_recalibration_that_raises_leaves_the_statistics_alone() -> None:
    model = model_with_norm()
    given = Validation(recalibrate=[])
    assert not given.recalibrated(model)
    assert model[0].running_mean.tolist() == [0.0, 0.0]  # type: ignore[union-attr]
    assert "recalibrate raised Misuse" in given.note()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"validate": 0.9}, "validate=0.9"),
        ({"better": "more"}, "'higher' or 'lower'"),
        ({"recalibrate": 16}, "recalibrate=16"),
    ],
)
def test_misuse_is_told_at_the_start(arguments: dict[str, object], words: str) -> None:
    model = nn.Linear(1, 1)
    with pytest.raises(Misuse, match=words):
        taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1), **arguments)  # type: ignore[arg-type]


def test_a_run_of_one_is_recalibrated_and_scored() -> None:
    model = model_with_norm()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [torch.full((4, 2), 3.0), torch.full((4, 2), 5.0)]
    mean = "running_mean"
    validate = lambda given: float(getattr(given[0], mean)[0])  # noqa: E731
    with taut.join(model, optimizer, validate=validate, recalibrate=batches) as worker:
        for x in worker.batches(torch.randn(8, 2), batch_size=4):
            worker.step(model(x).square().mean())
        assert worker.score is None
    assert worker.score == 4.0


def test_a_run_of_one_tells_what_its_function_raised() -> None:
    model = nn.Linear(1, 1)
    with (
        pytest.raises(FinishFailed, match="KeyError"),
        taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1), validate=lambda model: {}["score"]),
    ):
        pass

"""``TautTrainer`` alone: the same steps as taut's own loop and as the plain Trainer, and what it refuses."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from linear_model import DATA, Linear, X, Y, arguments, sgd
from torch.utils.data import IterableDataset
from transformers import Trainer, TrainerCallback

import taut
from taut.errors import Misuse, NonFiniteLoss
from taut.hf import TautMixin, TautTrainer

EXAMPLES = Path(__file__).parents[3] / "examples"


def train(folder: Path, model: Any, given: Any = DATA, kind: Any = TautTrainer, **options: Any) -> Any:
    beside = {name: options.pop(name) for name in ("optimizers", "callbacks", "join", "eval_dataset") if name in options}
    trainer = kind(model, arguments(folder, **options), train_dataset=given, **beside)
    trainer.train()
    return trainer


def weights(model: Any) -> list[float]:
    return [*model.layer.bias.tolist(), *model.layer.weight.flatten().tolist()]


@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_the_steps_are_those_of_taut_s_own_loop(tmp_path: Path, clip: float) -> None:
    model = Linear()
    options = {"optimizers": sgd(model), "lr_scheduler_type": "constant", "max_grad_norm": clip}
    trainer = train(tmp_path, model, **options)
    other = Linear()
    with taut.join(other, sgd(other)[0]) as worker:
        for _ in range(2):
            for x, y in worker.batches((X, Y), 8):
                worker.step(other(x, y)["loss"], clip_norm=clip or None)
    assert weights(model) == pytest.approx(weights(other), abs=1e-6)
    mine = trainer.worker
    assert (mine.steps, mine.samples, trainer.state.global_step) == (40, 320, 40) and mine.closed
    assert mine.loss == pytest.approx(worker.loss)


class Rates(TrainerCallback):
    def __init__(self) -> None:
        self.found: list[float] = []

    def on_step_end(self, *_: Any, lr_scheduler: Any, **__: Any) -> None:
        self.found += lr_scheduler.get_last_lr()


@pytest.mark.parametrize("kind", ["linear", "cosine"])
@pytest.mark.parametrize("together", [1, 3])
def test_the_rates_are_those_of_the_plain_trainer(tmp_path: Path, kind: str, together: int) -> None:
    rates, steps = [], []
    options = {"lr_scheduler_type": kind, "warmup_steps": 5, "gradient_accumulation_steps": together}
    for trainer in (Trainer, TautTrainer):
        seen = Rates()
        steps.append(train(tmp_path, Linear(), kind=trainer, callbacks=[seen], **options).state.global_step)
        rates.append(seen.found)
    assert steps[0] == steps[1] and rates[0] == pytest.approx(rates[1], abs=1e-9)


@pytest.mark.parametrize("steps", [25, 60])
def test_max_steps_may_end_the_training_within_a_pass(tmp_path: Path, steps: int) -> None:
    model = Linear()
    worker = train(tmp_path, model, max_steps=steps).worker
    assert worker.steps == steps and worker.samples == sum(model.seen) == 8 * steps and worker.closed


def test_gradients_add_up_over_batches(tmp_path: Path) -> None:
    model = Linear()
    worker = train(tmp_path, model, gradient_accumulation_steps=3, dataloader_num_workers=1).worker
    assert (worker.steps, worker.samples, sum(model.seen)) == (14, 320, 320)


def test_evaluations_logs_and_files_are_as_ever(tmp_path: Path) -> None:
    class Mine(TautMixin, Trainer):
        pass

    model = Linear()
    options = {"eval_dataset": DATA[:16], "eval_strategy": "epoch", "save_strategy": "epoch", "logging_steps": 10}
    trainer = train(tmp_path, model, kind=Mine, join={"validate": lambda model: model.layer.bias.item()}, **options)
    assert sum("eval_loss" in each for each in trainer.state.log_history) == 2
    assert (tmp_path / "checkpoint-40").is_dir() and trainer.worker.score == model.layer.bias.item()


class Endless(IterableDataset):
    def __iter__(self) -> Any:
        return iter(DATA)


@pytest.mark.parametrize(
    ("given", "options", "why"),
    [
        (Endless(), {"max_steps": 2}, "an IterableDataset as the training data of a trainer: expected a data set"),
        (
            [{"input_ids": [1], **each} for each in DATA],
            {"train_sampling_strategy": "group_by_length"},
            "LengthGroupedSampler in the Trainer: expected samples",
        ),
    ],
)
def test_what_cannot_be_dealt_is_refused(tmp_path: Path, given: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(Misuse) as refused:
        train(tmp_path, Linear(), given, **options)
    assert why in str(refused.value)


def test_a_loss_that_is_not_finite_ends_the_worker(tmp_path: Path) -> None:
    model = Linear()
    trainer = TautTrainer(
        model, arguments(tmp_path), train_dataset=[{**each, "labels": Y[0] * torch.nan} for each in DATA]
    )
    with pytest.raises(NonFiniteLoss):
        trainer.train()
    assert trainer.worker is not None and trainer.worker.closed


def test_the_example_learns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "hf_classifier.py"), run_name="__main__")
    assert float(capsys.readouterr().out.split()[-1]) > 0.97


def test_a_pass_without_batches_is_passed_by(tmp_path: Path) -> None:
    """As after ``taut resume``, or where others were faster; the schedule is where the third pass ends."""

    class Resumed(TautTrainer):
        def begin_training(self) -> None:
            super().begin_training()
            self.worker._data.dealer.complete = 2

    trainer = train(tmp_path, Linear(), kind=Resumed, num_train_epochs=4, lr_scheduler_type="linear")
    assert (trainer.worker.steps, trainer.worker.samples) == (40, 320)
    assert trainer.lr_scheduler.last_epoch == 80 and set(trainer.lr_scheduler.get_last_lr()) == {0.0}

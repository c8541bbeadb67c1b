"""``TautStrategy`` alone: the same steps as taut's own loop, and what it refuses."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from linear_module import QUIET, Linear, X, Y, loader
from torch.utils.data import IterableDataset

import taut
from taut.errors import Misuse, NonFiniteLoss
from taut.lightning import TautStrategy

EXAMPLES = Path(__file__).parents[3] / "examples"


def fit(model: Any, given: Any = None, strategy: Any = None, **options: Any) -> Any:
    strategy = strategy or TautStrategy()
    trainer = lightning.Trainer(strategy=strategy, **{"max_epochs": 2, **QUIET, **options})
    trainer.fit(model, loader() if given is None else given)
    return trainer


def weights(model: Any) -> list[float]:
    return [*model.layer.bias.tolist(), *model.layer.weight.flatten().tolist()]


@pytest.mark.parametrize("clip", [None, 0.5])
def test_the_steps_are_those_of_taut_s_own_loop(clip: float | None) -> None:
    model = Linear()
    trainer = fit(model, gradient_clip_val=clip)
    other = Linear()
    given = other.configure_optimizers()
    with taut.join(other, given["optimizer"]) as worker:
        for _ in range(2):
            for batch in worker.batches((X, Y), 8):
                worker.step(other.training_step(batch, 0), clip_norm=clip)
            given["lr_scheduler"].step()
    assert weights(model) == weights(other)
    mine = trainer.strategy.worker
    assert (mine.steps, mine.samples, mine.loss) == (worker.steps, worker.samples, worker.loss) == (40, 320, mine.loss)
    assert trainer.global_step == 40 and trainer.current_epoch == 2 and mine.closed


def test_the_strategy_has_a_name() -> None:
    model = Linear()
    trainer = fit(model, strategy="taut")
    assert isinstance(trainer.strategy, TautStrategy) and trainer.strategy.worker.samples == 320


@pytest.mark.parametrize("workers", [0, 1])
def test_gradients_add_up_over_batches(workers: int) -> None:
    model = Linear()
    trainer = fit(model, loader(16, num_workers=workers), accumulate_grad_batches=4)
    worker = trainer.strategy.worker  # ten batches in a pass: 4, 4, and the two that are left
    assert (worker.steps, worker.samples, sum(model.seen)) == (6, 320, 320)


@pytest.mark.parametrize("limit", [{"max_steps": 25, "max_epochs": -1}, {"limit_train_batches": 10}])
def test_a_training_may_end_within_a_pass(limit: dict[str, Any]) -> None:
    model = Linear()
    worker = fit(model, **limit).strategy.worker
    assert worker.steps == len(model.seen) == limit.get("max_steps", 20)
    assert worker.samples == sum(model.seen) and worker.closed


def test_a_validation_between_steps_sees_the_weights() -> None:
    model, strategy = Linear(), TautStrategy(validate=lambda model: model.layer.bias.item())
    trainer = lightning.Trainer(strategy=strategy, max_epochs=2, val_check_interval=5, **QUIET)
    trainer.fit(model, loader(), loader())
    assert trainer.callback_metrics["off"] < 5.0 and strategy.worker.score == model.layer.bias.item()


def test_a_checkpoint_at_the_end_has_the_final_weights(tmp_path: Path) -> None:
    model = Linear()
    options = {"enable_checkpointing": True, "callbacks": [ModelCheckpoint(tmp_path, save_last=True)]}
    fit(model, **options)
    kept = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert torch.equal(kept["state_dict"]["layer.weight"], model.layer.weight)


class Two(Linear):
    """Steps of two optimizers in each batch, as a GAN makes them."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, index: int) -> None:
        for optimizer in self.optimizers():
            loss = super().training_step(batch, index)
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD([each], lr=0.05) for each in (self.layer.weight, self.layer.bias)]


def test_several_optimizers_make_one_step_of_a_batch() -> None:
    model = Two()
    worker = fit(model).strategy.worker
    assert worker.steps == 40 and len(model.seen) == 80 and abs(model.layer.bias.item() - 3.0) < 0.3


class Endless(IterableDataset):
    def __iter__(self) -> Any:
        return iter([(X[0], Y[0])])


class Scheduled(Linear):
    def configure_optimizers(self) -> Any:
        assert self.trainer.estimated_stepping_batches
        return super().configure_optimizers()


@pytest.mark.parametrize(
    ("model", "given", "why"),
    [
        (
            Linear(),
            torch.utils.data.DataLoader(Endless(), batch_size=2),
            "an IterableDataset as the training data of a trainer: expected a data set",
        ),
        (Linear(), [(X, Y)], "training data as Tensor: expected a DataLoader"),
        (Linear(), {"one": loader(), "other": loader()}, "several train_dataloaders: expected one"),
        (Scheduled(), loader(), "give the schedule a length of your own"),
    ],
)
def test_what_cannot_be_dealt_is_refused(model: Any, given: Any, why: str) -> None:
    with pytest.raises(Misuse) as refused:
        fit(model, given)
    assert why in str(refused.value)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(Misuse, match="did you mean 'codec'"):
        TautStrategy(codecs="dense")


def test_a_loss_that_is_not_finite_ends_the_worker() -> None:
    class Broken(Linear):
        def training_step(self, batch: Any, index: int) -> Any:
            return super().training_step(batch, index) * float("nan")

    strategy = TautStrategy()
    with pytest.raises(NonFiniteLoss):
        fit(Broken(), strategy=strategy)
    assert strategy.worker is not None and strategy.worker.closed


def test_the_example_learns(capsys: pytest.CaptureFixture[str]) -> None:
    found = runpy.run_path(str(EXAMPLES / "lightning_mlp.py"), run_name="__main__")
    assert found["trainer"].callback_metrics["accuracy"] > 0.97


def test_a_pass_without_batches_is_passed_by() -> None:
    """As after ``taut resume``, or where others were faster."""

    class Resumed(Linear):
        def on_fit_start(self) -> None:
            self.trainer.strategy.worker._data.dealer.complete = 2

    worker = fit(Resumed(), max_epochs=3).strategy.worker
    assert (worker.steps, worker.samples) == (20, 160)

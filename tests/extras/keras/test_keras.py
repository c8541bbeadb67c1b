"""``taut.keras.join`` alone: the steps of ``model.fit``, and what it refuses."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import torch
from linear_keras import X, Y, linear, weights
from torch.utils.data import DataLoader, TensorDataset

import taut.keras
from taut.errors import Misuse, NonFiniteLoss
from taut.keras.join import OptimizerState

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: keras.optimizers.SGD(0.05, momentum=0.5),
        lambda: keras.optimizers.AdamW(0.05, clipnorm=1.0),
        lambda: keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.1, 40), gradient_accumulation_steps=2),
        lambda: keras.optimizers.Adafactor(0.05),
    ],
)
def test_the_steps_are_those_of_the_plain_fit(optimizer: Any) -> None:
    model, plain = linear(optimizer()), linear(optimizer())
    with taut.keras.join(model) as worker:
        found = model.fit(taut.keras.Dealt(worker, (X, Y), 8, shuffle=False), epochs=2, verbose=0)
    expected = plain.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    assert weights(model) == pytest.approx(weights(plain), abs=1e-6)
    assert found.history["loss"] == pytest.approx(expected.history["loss"], rel=1e-5)
    assert (worker.steps, worker.samples) == (40, 320) and worker.loss is not None
    assert int(model.optimizer.iterations) == int(plain.optimizer.iterations)


def test_fit_goes_on_alone_after_the_end() -> None:
    model = linear()
    with taut.keras.join(model) as worker:
        model.fit(taut.keras.Dealt(worker, (X, Y), 8), verbose=0)
    before = weights(model)
    model.fit(X, Y, batch_size=8, verbose=0)
    assert weights(model) != before and worker.steps == 20


class Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.stop_training = batch == 6


def test_a_pass_may_be_left_early_and_another_fit_begins_the_next() -> None:
    model = linear(metrics=["mae"])
    with taut.keras.join(model) as worker:
        data = taut.keras.Dealt(worker, (X, Y), 8)
        model.fit(data, epochs=3, verbose=0, callbacks=[Stop()])
        assert (worker.steps, worker.samples) == (7, 56)
        model.fit(data, verbose=0)
    assert (worker.steps, worker.samples) == (27, 216)


def test_the_optimizer_s_variables_are_saved_and_loaded() -> None:
    one, other = linear(), linear()
    with taut.keras.join(one) as worker:
        one.fit(taut.keras.Dealt(worker, (X, Y), 8), verbose=0)
    other.optimizer.build(other.trainable_variables)
    OptimizerState(other.optimizer).load_state_dict(OptimizerState(one.optimizer).state_dict())
    for mine, given in zip(other.optimizer.variables, one.optimizer.variables, strict=True):
        np.testing.assert_array_equal(mine.numpy(), given.numpy())
    with pytest.raises(ValueError, match="1 variables"):
        OptimizerState(other.optimizer).load_state_dict({"0": None})


@pytest.mark.parametrize(
    "data",
    [
        lambda: TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)),
        lambda: DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), 8),
        lambda: list(zip(X, Y, strict=True)),
    ],
)
def test_data_sets_and_loaders_are_dealt(data: Any) -> None:
    model = linear(metrics=["mae"])
    with taut.keras.join(model) as worker:
        model.fit(taut.keras.Dealt(worker, data(), 8), epochs=2, verbose=0)
    assert (worker.steps, worker.samples) == (40, 320)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (lambda: "linear", "join(str): expected a keras.Model"),
        (lambda: keras.Sequential([keras.layers.Dense(1)]), "a model that is not built"),
        (lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]), "a model that is not compiled"),
        (lambda: linear(jit_compile=True), "jit_compile=True"),
        (lambda: linear(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())), "a LossScaleOptimizer"),
    ],
)
def test_what_cannot_be_trained_is_refused(model: Any, why: str) -> None:
    with pytest.raises(Misuse) as refused:
        taut.keras.join(model())
    assert why in str(refused.value)


def test_another_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(Misuse, match="on the backend jax: expected torch; set KERAS_BACKEND=torch"):
        taut.keras.join(linear())


def test_a_loss_that_is_not_finite_ends_the_worker() -> None:
    model = linear()
    with pytest.raises(NonFiniteLoss), taut.keras.join(model) as worker:
        model.fit(taut.keras.Dealt(worker, (X, Y * np.nan), 8), verbose=0)
    assert worker.closed


def test_the_example_learns(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "keras_mlp.py"), run_name="__main__")
    assert float(capsys.readouterr().out.split()[-1]) > 0.97


def test_a_pass_without_batches_is_passed_by() -> None:
    """As after ``taut resume``, or where others were faster."""
    model = linear(metrics=["mae"])
    with taut.keras.join(model) as worker:
        worker._data.dealer.complete = 2
        model.fit(taut.keras.Dealt(worker, (X, Y), 8), epochs=3, verbose=0)
    assert (worker.steps, worker.samples) == (20, 160)

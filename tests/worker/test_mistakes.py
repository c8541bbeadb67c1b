"""Mistakes that a script can make without an error of its own: each is refused, or warned of."""

from __future__ import annotations

import logging
from pathlib import Path

import memory_run
import numpy as np
import pytest
import torch
from torch import nn

import taut
from taut.errors import Misuse

X = torch.linspace(-1.0, 1.0, 80).reshape(20, 4)


def joined(model: nn.Module | None = None) -> taut.TorchWorker:
    model = nn.Linear(4, 1) if model is None else model
    return taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1))


@pytest.mark.parametrize("norm", [-1.0, 0.0, float("nan"), "big"])
def test_gradients_are_clipped_to_a_number_above_0(norm: object) -> None:
    with joined() as worker:
        for step in (lambda: worker.step(worker.model(X).sum(), clip_norm=norm), lambda: worker.clip(norm)):  # type: ignore[arg-type]
            with pytest.raises(Misuse, match="clip_norm="):
                step()
    w = np.zeros(2, np.float32)
    with taut.join_vector(w, lambda w, gradient, lr: None, lr=0.1) as vector, pytest.raises(Misuse, match="clip_norm="):
        vector.step(np.ones(2), clip_norm=norm)  # type: ignore[arg-type]


def test_a_loss_of_another_model_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    other = nn.Linear(4, 1)
    with joined() as worker:
        worker.step(other(X).sum())
        worker.step(worker.model(X).sum())
    assert caplog.text.count("does not depend on the model that was joined") == 1


def test_data_without_a_step_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with joined() as worker:
        assert len(list(worker.batches(X, batch_size=5))) == 4
    assert "no step was made" in caplog.text
    with joined():
        caplog.clear()
    assert not caplog.text


def test_nothing_is_trained_after_the_end() -> None:
    with joined() as worker:
        pass
    for late in (
        lambda: worker.batches(X, batch_size=5),
        lambda: worker.step(worker.model(X).sum()),
        lambda: worker.exchange(1.0),
    ):
        with pytest.raises(Misuse, match="after the end of the training"):
            late()


def test_what_cannot_be_logged_is_refused_in_a_script_alone_too() -> None:
    with joined() as worker:
        worker.log(loss=0.5)
        with pytest.raises(Misuse, match="print\\(\\) takes texts"):
            worker.log(loss="high")


def test_what_is_no_number_no_array_and_no_function_is_named() -> None:
    with joined() as worker:
        with pytest.raises(Misuse, match="a loss that is a ndarray: expected one number"):
            worker.exchange(np.zeros(3))  # type: ignore[arg-type]
        other = nn.Linear(4, 1)
        with pytest.raises(Misuse, match=r"worker\.grow\(carry='all'\)"):
            worker.grow(other, torch.optim.SGD(other.parameters(), lr=0.1), carry="all")  # type: ignore[arg-type]

    class Wordy(taut.Worker):
        def iterate(self) -> np.ndarray:
            return "an update"  # type: ignore[return-value]

        def include(self, update: np.ndarray, sender: int) -> None: ...

    with pytest.raises(Misuse, match=r"Wordy\.iterate\(\), which returned a str"):
        Wordy().emit()


def test_an_update_function_that_returns_a_new_array_is_refused() -> None:
    w = np.zeros(2, np.float32)
    worker = taut.join_vector(w, lambda w, gradient, lr: w - lr * gradient, lr=0.1)  # type: ignore[arg-type,return-value]
    with pytest.raises(Misuse, match="changes its array in place"):
        worker.step(np.ones(2))
    worker.close()
    with taut.join_vector(w, lambda w, gradient, lr: np.subtract(w, lr * gradient, out=w), lr=0.1) as worker:  # type: ignore[arg-type]
        worker.step(np.ones(2))
    assert w.tolist() == pytest.approx([-0.1, -0.1])


def test_data_beside_clients_is_refused_in_a_script_alone_too() -> None:
    with joined() as worker:
        for round in worker.rounds([[0], [1]], 1):
            with pytest.raises(Misuse, match=r"worker\.batches in a script with worker\.rounds"):
                worker.batches(X, batch_size=5)
            assert len(list(round)) == 2


def test_a_misspelt_option_is_guessed() -> None:
    with joined() as worker, pytest.raises(Misuse, match="did you mean 'batch_size'"):
        worker.batches(X, batchsize=5)


def test_fewer_shards_than_workers_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with joined() as worker, caplog.at_level(logging.WARNING, logger="taut"):
        monkeypatch.setattr(type(worker), "workers", 3)
        batches = worker.batches(taut.data.Shards(["1", "2"], lambda name: [torch.ones(4)]), batch_size=2)
        assert caplog.messages == ["2 shards for 3 workers: some have nothing to do; make more of them"]
        monkeypatch.undo()
        for batch in batches:
            worker.step(worker.model(batch).sum())


def test_fewer_batches_than_workers_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_run, "BATCH", 128)
    with caplog.at_level(logging.WARNING, logger="taut"):
        memory_run.train(tmp_path, "async", workers=3)
    said = [record.message for record in caplog.records if "some have nothing to do" in record.message]
    few = "256 samples in batches of 128 make 2 a pass, for 3 workers"
    assert said == [f"{few}: some have nothing to do; take a smaller batch_size"]

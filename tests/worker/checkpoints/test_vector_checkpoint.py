"""Checkpoints of ``taut.join_vector``: a continued run ends with the bits of one that never stopped."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_checkpoint import Job, X, continued

import taut
from taut.config import WorkerEnvironment
from taut.supervisor.service import Supervisor
from taut.worker.joining.connection import CONNECTOR, SocketConnector

DATA = X.numpy().copy()


@dataclass(frozen=True)
class VectorJob(Job):
    """With noise of its own, a momentum, and a rate that falls; ``by``: who changes the array."""

    by: str = "update"

    def work(self, supervisor: Supervisor, resumed: bool, kill: int | None = None) -> bytes:
        token = WorkerEnvironment(supervisor.address, token_file=str(supervisor.token_file))
        before = CONNECTOR.set(SocketConnector(token))
        np.random.seed(self.seed)
        w, moved = np.zeros(6, np.float32), np.zeros(6, np.float32)

        def momentum(w: Any, gradient: Any, lr: float) -> None:
            moved[:] = 0.9 * moved + gradient
            w -= lr * moved

        given: dict[str, Any] = {"update": momentum, "state": {"moved": moved}} if self.by == "update" else {}
        try:
            worker = taut.join_vector(w, lr=0.1, **given)
            assert worker.resumed == resumed
            steps = self.train_array(worker, w)
            if kill is not None:
                self._die(worker, supervisor, kill, steps)
                return b""
            for _ in steps:
                pass
            worker.close()
            return w.tobytes() + moved.tobytes()
        finally:
            CONNECTOR.reset(before)

    def train_array(self, worker: Any, w: np.ndarray) -> Iterator[int]:
        for x in worker.batches(DATA, **self.size, epochs=self.epochs):
            gradient = (w - x).mean(0) + np.random.normal(0.0, 0.1, 6)
            if self.by == "update":
                worker.step(gradient, float(np.square(gradient).sum()))
                worker.lr *= 0.98
            else:
                w -= 0.1 * gradient.astype(np.float32)
                worker.exchange()
            yield worker.steps


@pytest.mark.parametrize(
    "job",
    [
        VectorJob(seed=1),
        VectorJob(strategy="sync", codec="dense", seed=2),
        pytest.param(VectorJob(codec="qsgd", seed=3), marks=pytest.mark.long),
        VectorJob(by="script", seed=4),
        pytest.param(VectorJob(strategy="dpsgd", codec="dense", by="script", seed=5), marks=pytest.mark.long),
    ],
    ids=["update", "sync", "qsgd", "script", "dpsgd"],
)
def test_a_continued_run_has_the_bits_of_one_that_never_stopped(job: VectorJob, tmp_path: Path) -> None:
    kill = random.Random(job.seed).randrange(1, 40)
    assert continued(job, tmp_path / "cut", kill) == job.run(tmp_path / "whole"), f"killed after step {kill}"

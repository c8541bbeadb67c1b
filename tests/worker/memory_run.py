"""A whole run in one process: a real supervisor, and real workers as threads, over the transport in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional as F

import taut
from taut.config import WorkerEnvironment, resolve
from taut.supervisor.prepare import Listen
from taut.supervisor.service import Supervisor
from taut.worker.joining.connection import CONNECTOR, SocketConnector

SAMPLES, BATCH = 256, 4


def train(
    folder: Path, strategy: str, workers: int = 2, transport: str = "memory", begun: Callable[[], None] = lambda: None
) -> list[torch.nn.Module]:
    """Train a small model, and return each worker's as it ends. ``begun`` is called in each worker's thread."""
    settings = resolve({"strategy": strategy, "workers": workers}, environ={}, cwd=folder).fitted()
    listen = Listen(transport=transport)
    supervisor = Supervisor(settings.shared(), folder / "run", run="run", workers=workers, seed=0, listen=listen)
    models = [torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)) for _ in range(workers)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    failures: list[BaseException] = []

    def work(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        begun()
        try:
            CONNECTOR.set(SocketConnector(WorkerEnvironment(supervisor.address, token=supervisor.token)))
            inputs = torch.linspace(-1.0, 1.0, 4 * SAMPLES).reshape(SAMPLES, 4)
            with taut.join(model, optimizer) as worker:
                for x, y in worker.batches((inputs, inputs.sum(1, keepdim=True)), batch_size=BATCH, epochs=1):
                    worker.step(F.mse_loss(model(x), y))
        except BaseException as error:
            failures.append(error)

    supervisor.start()
    threads = [threading.Thread(target=work, args=each, daemon=True) for each in zip(models, optimizers, strict=True)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        if failures:
            raise failures[0]
        outcome = supervisor.wait(10)
        assert outcome is not None and outcome.exit_code == 0, outcome
        return models
    finally:
        supervisor.stop()

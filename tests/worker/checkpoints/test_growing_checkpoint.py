"""Checkpoints of a model that has grown: continued with the grown model, a run ends with the bits of one that never
stopped; with the model of before it is refused by name. The supervisor is real; the worker is this thread."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import taut
from taut.config import WorkerEnvironment
from taut.core.checkpoint_names import FOLDER, MANIFEST
from taut.errors import Misuse
from taut.supervisor.checkpoints.folder import Found, last_good
from taut.supervisor.prepare import Origin
from taut.supervisor.service import Supervisor
from taut.worker.joining.connection import CONNECTOR, SocketConnector

X = torch.randn(120, 6, generator=torch.Generator().manual_seed(1))
Y = X[:, :3].argmax(1)


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def large() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 3))


def momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def run(folder: Path, resume: Found | None = None, first: str = "small", dies: bool = False) -> bytes:
    """Train two stretches, the second one with the large model; return the model's bits. ``dies``: without a word, in the
    second stretch, when a checkpoint of it is whole."""
    every = "0.01s" if dies else "1h"
    chosen = {"strategy": "sync", "topology": "complete", "codec": "dense", "workers": 1, "checkpoint_every": every}
    supervisor = Supervisor(chosen, folder, run=folder.name, workers=1, seed=0, origin=Origin(resume=resume))
    supervisor.start()
    link = WorkerEnvironment(supervisor.address, token_file=str(supervisor.token_file))
    before = CONNECTOR.set(SocketConnector(link))
    torch.manual_seed(0)
    try:
        model = small() if first == "small" else large()
        worker = taut.join(model, momentum(model))
        for stretch in range(2):
            if stretch and first == "small":
                torch.manual_seed(2)
                model = large()
                worker.grow(model, momentum(model))
            for x, y in worker.batches((X, Y), batch_size=10, epochs=3):
                worker.step(F.cross_entropy(model(x), y))
                if dies and stretch and _whole(worker, folder):
                    worker._closed = True
                    worker._session.comm.close()  # type: ignore[union-attr]
                    return b""
        worker.close()
        assert worker.steps == 72
        return b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
    finally:
        CONNECTOR.reset(before)
        supervisor.stop()


def _whole(worker: taut.TorchWorker, folder: Path) -> bool:
    """Wait, late in the run, for a checkpoint that was taken in this stretch."""
    keeper, session = worker._keeper, worker._session
    assert keeper is not None and session is not None
    if worker.steps == 50:
        session.comm.wait(lambda _: keeper.wanted, lambda: None)
    if worker.steps < 52:
        return False
    session.comm.wait(lambda _: (folder / FOLDER / str(keeper.taken) / MANIFEST).exists(), lambda: None)
    return True


def test_a_grown_model_is_continued_as_such_and_not_as_the_one_before(tmp_path: Path) -> None:
    run(tmp_path / "cut", dies=True)
    found = last_good(tmp_path / "cut" / FOLDER)
    assert found is not None and found.manifest.steps >= 50 and found.manifest.phase == 0
    with pytest.raises(Misuse, match="is of a model that has grown: join the grown one, and go on from there"):
        run(tmp_path / "refused", resume=found)
    assert run(tmp_path / "on", resume=found, first="large") == run(tmp_path / "whole")

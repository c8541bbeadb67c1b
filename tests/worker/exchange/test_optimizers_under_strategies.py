"""Every strategy with SGD, momentum, Adam, AdamW and Muon: two workers in threads over the in-memory transport learn,
end, and keep their moments (whatever is exchanged, nobody's optimizer loses its state)."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from worker_threads import ThreadSeat, in_threads

from taut.optim import Muon
from taut.strategies import REGISTRY
from taut.strategies.compatibility import combine
from taut.worker.comm.comm_thread import CommThread
from taut.worker.model.flat_params import FlatParams
from taut.worker.phases import Phases
from taut.worker.torch_worker import TorchWorker

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "muon": lambda p: Muon(p, lr=0.02),
}
ADAMS, MOMENTUM = {"exp_avg", "exp_avg_sq"}, {"momentum_buffer"}
KEYS = {"momentum": MOMENTUM, "adam": ADAMS, "adamw": ADAMS, "muon": ADAMS | MOMENTUM}
SHORTER = {
    "diloco": "diloco:every=5",
    "sparseloco": "sparseloco:every=4",
    "noloco": "noloco:every=5",
    "easgd": "easgd:every=4",
    "codistillation": "codistillation:every=5",
}
STEPS = 40


class PhasedSeat(ThreadSeat):
    def __init__(self, node: CommThread, phases: Phases) -> None:
        super().__init__(node, phases.params)
        self.phases = phases
        phases.begin(node, self.watch)
        phases.replica.found(2)

    @property
    def exchange(self) -> Any:  # type: ignore[override]
        return self.phases.exchange


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))


def run(strategy: str, make: Any) -> tuple[list[nn.Module], list[torch.optim.Optimizer]]:
    chosen = combine(strategy, workers=2)
    settings = {"strategy": strategy, "topology": chosen.topology, "codec": chosen.codec}
    models = [network() for _ in range(2)]
    optimizers = [make(model.parameters()) for model in models]
    phases = [Phases(settings, FlatParams(model), None) for model in models]

    def work(rank: int, node: CommThread) -> Any:
        worker = TorchWorker(models[rank], optimizers[rank], PhasedSeat(node, phases[rank]), seed=0)  # type: ignore[arg-type]
        made = torch.Generator().manual_seed(rank)
        for _ in range(STEPS):
            x = torch.randn(32, 8, generator=made)
            worker.step(F.cross_entropy(models[rank](x), x[:, :3].argmax(1)))
        return worker.close

    in_threads([phase.protocol for phase in phases], work)
    for phase in phases:
        phase.replica.retire()
    return models, optimizers


def accuracy(model: nn.Module) -> float:
    x = torch.randn(1000, 8, generator=torch.Generator().manual_seed(9))
    return (model(x).argmax(1) == x[:, :3].argmax(1)).float().mean().item()


STRATEGIES = sorted(set(REGISTRY) - {"relay"})
QUICK = {
    *product(STRATEGIES, ("momentum", "adamw")),
    *product(("async", "sync"), OPTIMIZERS),
}  # one of each kind of state


@pytest.mark.parametrize(
    ("strategy", "optimizer"),
    [pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.long) for pair in product(STRATEGIES, OPTIMIZERS)],
)
def test_it_learns_and_moments_stay(strategy: str, optimizer: str) -> None:
    models, optimizers = run(SHORTER.get(strategy, strategy), OPTIMIZERS[optimizer])
    before = accuracy(network())
    assert min(accuracy(model) for model in models) > before + 0.15
    for one in optimizers:
        states = list(one.state.values())
        moments = [{name: value for name, value in state.items() if isinstance(value, torch.Tensor)} for state in states]
        assert optimizer == "sgd" or len(states) == 4, "an optimizer lost its state"
        assert all(KEYS[optimizer] & each.keys() for each in moments if optimizer != "sgd")
        assert all(torch.isfinite(one).all() and one.abs().sum() > 0 for each in moments for one in each.values())

"""Every strategy with SGD, momentum, Adam and AdamW: two workers in threads over the in-memory transport learn, end, and
keep their moments (whatever is exchanged, nobody's optimizer loses its state)."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from taut.communication.memory import MemoryNetwork
from taut.core.messages import Member, Roster
from taut.strategies import REGISTRY
from taut.strategies.combination import combine
from taut.worker.accounting import Stopwatch
from taut.worker.arena import Arena
from taut.worker.batches import OwnLeases
from taut.worker.node import Node
from taut.worker.phases import Phases
from taut.worker.torch_worker import TorchWorker

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
}
SHORTER = {"diloco": "diloco:every=5", "easgd": "easgd:every=4", "codistillation": "codistillation:every=5"}
STEPS = 40


class ThreadSeat:
    """A place in a run of threads: no supervisor, everybody ready."""

    seed, stopping, score = 0, False, None

    def __init__(self, node: Node, phases: Phases) -> None:
        self.node, self.phases, self.arena = node, phases, phases.arena
        self.watch, self.leases, self.statistics = Stopwatch(), OwnLeases(), None
        phases.begin(node, self.watch)
        phases.replica.found(2)

    @property
    def talk(self) -> Any:
        return self.phases.talk

    def __getattr__(self, name: str) -> Any:  # attach, before_step, exchange, finish
        return getattr(self.phases.talk, name)

    def train(self) -> None:
        self.talk.start()

    def add_statistics(self, mine: Any) -> Any:
        return mine


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))


def run(strategy: str, make: Any) -> tuple[list[nn.Module], list[torch.optim.Optimizer]]:
    chosen = combine(strategy, workers=2)
    settings = {"strategy": strategy, "topology": chosen.topology, "codec": chosen.codec}
    wire, ranks = MemoryNetwork(), range(2)
    transports = [wire.transport(rank) for rank in ranks]
    members = [Member(rank, transports[rank].address, "", ready=True) for rank in ranks]
    models = [network() for _ in ranks]
    optimizers = [make(model.parameters()) for model in models]
    phases = [Phases(settings, Arena(model), None) for model in models]
    nodes = [Node(transports[rank], lambda _, rank=rank: phases[rank].protocol()) for rank in ranks]
    failures: list[BaseException] = []
    for rank, node in enumerate(nodes):
        node.seat(rank, [member for member in members if member.rank != rank])
        node.facts.roster = Roster(1, members, [])
        node.start()
    for node in nodes:  # what reaches a node that does not know its neighbours yet has to be sent again, much later
        node.wait(lambda _, node=node: not node._commands, lambda: None, needs_supervisor=False)
    done = threading.Barrier(2, action=lambda: [node.facts.note(drain="over") for node in nodes])

    def work(rank: int) -> None:
        try:
            worker = TorchWorker(models[rank], optimizers[rank], ThreadSeat(nodes[rank], phases[rank]), seed=0)  # type: ignore[arg-type]
            made = torch.Generator().manual_seed(rank)
            for _ in range(STEPS):
                x = torch.randn(32, 8, generator=made)
                worker.step(F.cross_entropy(models[rank](x), x[:, :3].argmax(1)))
            threading.Timer(0.0, done.wait).start()  # the run is drained when nobody has data left
            worker.close()
        except BaseException as error:
            failures.append(error)
            for node in nodes:
                node.facts.fail(error)
            done.abort()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for node in nodes:
        node.close()
    if failures:
        raise failures[0]
    for phase in phases:
        phase.replica.retire()
    return models, optimizers


def accuracy(model: nn.Module) -> float:
    x = torch.randn(1000, 8, generator=torch.Generator().manual_seed(9))
    return (model(x).argmax(1) == x[:, :3].argmax(1)).float().mean().item()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("strategy", sorted(set(REGISTRY) - {"relay"}))
def test_it_learns_and_moments_stay(strategy: str, optimizer: str) -> None:
    models, optimizers = run(SHORTER.get(strategy, strategy), OPTIMIZERS[optimizer])
    before = accuracy(network())
    assert min(accuracy(model) for model in models) > before + 0.15
    for one in optimizers:
        states = list(one.state.values())
        keys = {"sgd": set(), "momentum": {"momentum_buffer"}}.get(optimizer, {"exp_avg", "exp_avg_sq"})
        assert not keys or len(states) == 4, "an optimizer lost its state"
        assert all(torch.isfinite(state[key]).all() and state[key].abs().sum() > 0 for state in states for key in keys)

"""A model that grows once between two stretches of the data. ``--told``: a file for the weights right after that."""

import argparse
import hashlib
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import taut
from taut.testing.soak.laws import TALLY

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=96)
parser.add_argument("--to", choices=["none", "same", "deeper", "shared"], default="deeper")
parser.add_argument("--own", action="store_true", help="each worker has the data for itself")
parser.add_argument("--odd", type=int, default=-1, help="this worker asks for another model than the others")
parser.add_argument("--told", default="")
given = parser.parse_args()

x = torch.randn(given.samples, 6, generator=torch.Generator().manual_seed(0))
y, indices = x[:, :3].argmax(dim=1), torch.arange(given.samples)
torch.manual_seed(0)


def small() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 3), nn.BatchNorm1d(3))


def grown(model: nn.Sequential, rank: int) -> nn.Sequential:
    torch.manual_seed(1 + rank)
    if given.to == "same":
        return small()
    first = model[0] if given.to == "shared" else nn.Linear(6, 24)
    return nn.Sequential(first, nn.Tanh(), nn.Linear(24, 25 if rank == given.odd else 12), nn.Tanh(), nn.Linear(12, 3))


def momentum(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


model = small()
optimizer = momentum(model)
with taut.join(model, optimizer) as worker:
    for stretch in range(2):
        if stretch and given.to != "none":
            carried = model[0].weight.detach().clone()
            model = grown(model, worker.rank)
            worker.grow(model, momentum(model))
            if given.told:
                weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
                moments = bool(worker.optimizer.state.get(model[0].weight)) and not worker.optimizer.state.get(
                    model[-1].weight
                )
                with Path(given.told).open("a") as file:
                    line = f"{hashlib.sha256(weights).hexdigest()} {bool((model[0].weight == carried).all())} {moments}"
                    file.write(f"{worker.rank} {line} {model[-1].weight[0, 0].item()}\n")
        own = {"own": True} if given.own else {}
        for inputs, targets, samples in worker.batches((x, y, indices), batch_size=4, epochs=1, **own):
            TALLY.begun.update(samples.tolist())
            worker.step(functional.cross_entropy(model(inputs), targets))
            TALLY.ended.update(samples.tolist())

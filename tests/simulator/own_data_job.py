"""A training script that makes its own data, so that it needs no leases: so many steps for each worker. With ``--passes``
it takes leases after all, and begins each pass anew: at its end a worker is out of data for a moment."""

import argparse

import torch
from torch import nn
from torch.nn import functional

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--passes", type=int, default=0)
given = parser.parse_args()
torch.manual_seed(0)
model = nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
dealt = torch.randn(256, 3, generator=torch.Generator().manual_seed(0))
with taut.join(model, optimizer) as worker:
    leased = (x for _ in range(given.passes) for (x,) in worker.batches((dealt,), batch_size=8))
    for x in leased if given.passes else (torch.randn(8, 3) for _ in range(given.steps)):
        worker.step(functional.cross_entropy(model(x), x.argmax(dim=1)))

"""A training script that takes a moment: which of three inputs is the largest?"""

import argparse

import torch
from torch import nn
from torch.nn import functional

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=512)
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--raise-at", type=int, default=-1, help="the step at which worker 1 raises")
given = parser.parse_args()
made = torch.Generator().manual_seed(0)
x = torch.randn(given.samples, 3, generator=made)
y = x.argmax(dim=1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)


def accuracy(model: nn.Module) -> float:
    return float((model(x).argmax(dim=1) == y).float().mean())


with taut.join(model, optimizer, validate=accuracy) as worker:
    for inputs, targets in worker.batches((x, y), batch_size=8, epochs=given.epochs):
        noisy = inputs + 0.01 * torch.randn(inputs.shape)  # from the generator that all scripts share
        worker.step(functional.cross_entropy(model(noisy), targets))
        if worker.rank == 1 and worker.steps == given.raise_at:
            raise ValueError("as asked for")
print(f"worker {worker.rank} made {worker.steps} steps")

"""A training script one of whose workers is hostile: it claims to have other weights, finite and well formed."""

import argparse

import torch
from torch import nn
from torch.nn import functional

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--hostile", type=int, default=4, help="the rank of the worker that is")
given = parser.parse_args()
x = torch.randn(960, 3, generator=torch.Generator().manual_seed(0))
y = x.argmax(dim=1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)


def accuracy(model: nn.Module) -> float:
    return float((model(x).argmax(dim=1) == y).float().mean())


with taut.join(model, optimizer, validate=accuracy) as worker:
    for inputs, targets in worker.batches((x, y), batch_size=8, epochs=given.epochs):
        loss = functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if worker.rank == given.hostile:
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(-30.0)
        worker.exchange(torch.zeros(()))

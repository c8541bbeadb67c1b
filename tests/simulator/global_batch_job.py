"""A training script whose batches are parts of a global batch, or have a fixed size: which of three inputs is largest?"""

import argparse

import torch
from torch import nn
from torch.nn import functional

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--global-batch", type=int, default=0)
parser.add_argument("--batch-size", type=int, default=0)
parser.add_argument("--samples", type=int, default=2400)
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--one-loop", action="store_true", help="epochs=... instead of a loop over passes")
given = parser.parse_args()
made = torch.Generator().manual_seed(0)
x = torch.randn(given.samples, 3, generator=made)
y = x.argmax(dim=1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
size = {"global_batch": given.global_batch} if given.global_batch else {"batch_size": given.batch_size}


def negative_loss(model: nn.Module) -> float:
    return -float(functional.cross_entropy(model(x), y))


def train(batches) -> None:
    for inputs, targets in batches:
        worker.step(functional.cross_entropy(model(inputs), targets))
        sizes.append(len(inputs))


with taut.join(model, optimizer, validate=negative_loss) as worker:
    sizes: list[int] = []
    if given.one_loop:
        train(worker.batches((x, y), epochs=given.epochs, **size))
    else:
        for _ in range(given.epochs):
            train(worker.batches((x, y), **size))
print(f"worker {worker.rank}: {sizes}")

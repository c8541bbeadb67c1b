"""A training script for the tests that has no ``with``. Its argument: ``ranks``, one end for each worker, or a folder."""

import os
import sys

import torch

import taut

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(96, 4, generator=torch.Generator().manual_seed(0))
worker = taut.join(model, optimizer)


def step(inputs: torch.Tensor) -> None:
    worker.step((model(inputs) - 1).square().mean())


if sys.argv[1] == "ranks":
    for inputs in worker.batches(x, batch_size=4, epochs=2):
        step(inputs)
        if worker.rank == 1:
            raise ValueError("boom")
        if worker.rank == 2:
            taut.join(model, optimizer)
else:  # a loop of its own, which knows nothing of Ctrl-C
    while True:
        step(x)
        if worker.steps == 20:
            with open(os.path.join(sys.argv[1], f"at-20-{worker.rank}"), "w"):
                pass
    worker.close()

"""A script that raises in the middle, on worker 1."""

import torch

import taut

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with taut.join(model, optimizer) as worker:
    for _batch in worker.batches(torch.arange(6000), batch_size=10):
        worker.step(model(torch.ones(4)).square().sum())
        if worker.rank == 1 and worker.steps == 23:
            raise KeyError("a file is missing")

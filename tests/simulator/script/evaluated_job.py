"""A script whose score becomes better until step 60, and then no more; its validation function draws numbers."""

import sys

import torch

import taut

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def score(replica: torch.nn.Module) -> float:
    assert not replica.training
    torch.rand(3)
    return float(min(worker.steps // 15, 4))


validate = None if "--without" in sys.argv else score
with taut.join(model, optimizer, validate=validate) as worker:
    for batch in worker.batches(torch.arange(6000), batch_size=10, epochs=2):
        worker.step((model(torch.ones(4)) * float(batch.sum() > 0)).square().sum())

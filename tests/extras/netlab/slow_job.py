"""A model of about so many parameters, and two steps for each of two workers, which begin with the same weights."""

import sys

import torch

import taut

torch.manual_seed(0)
model = torch.nn.Linear(int(sys.argv[1]) // 10, 10, bias=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(16, int(sys.argv[1]) // 10)
with taut.join(model, optimizer) as worker:
    for batch in worker.batches(inputs, 4, epochs=1):
        worker.step(model(batch).square().mean())

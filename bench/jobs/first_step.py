"""The smallest training script there is: it writes down when its first step was done, and ends."""

import sys
import time
from pathlib import Path

import torch

import taut

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(64, 8)
with taut.join(model, optimizer) as worker:
    first = True
    for inputs in worker.batches(x, batch_size=1, epochs=1):
        worker.step(model(inputs).square().mean())
        if first:
            (Path(sys.argv[1]) / str(worker.rank)).write_text(str(time.monotonic()))
            first = False

"""A worker that trains without end, and keeps its number of steps where another process reads it at any moment: in the
file of 64-bit numbers that is its argument, at its rank."""

import mmap
import struct
import sys

import torch
from torch import nn
from torch.nn import functional as F

import taut

torch.manual_seed(0)
X = torch.randn(20_000, 64)
Y = (X @ torch.randn(64, 10)).argmax(1)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 0) as counts, taut.join(model, optimizer) as worker:
    for x, y in worker.batches((X, Y), batch_size=256, epochs=10_000_000):
        worker.step(F.cross_entropy(model(x), y))
        struct.pack_into("q", counts, 8 * worker.rank, worker.steps)

"""A training script that goes on until it is drained, and logs the learning rate of each of its optimizer's steps."""

import argparse
import threading

import torch
from torch import nn
from torch.nn import functional as F

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--own-loop", action="store_true")
args = parser.parse_args()
PACE = threading.Event()  # never set

torch.manual_seed(0)
X = torch.randn(400, 20)
Y = (X @ torch.randn(20, 5)).argmax(1)
model = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.0625, momentum=0.9)

with taut.join(model, optimizer) as worker:
    optimizer.register_step_pre_hook(lambda *_: worker.log(rate=optimizer.param_groups[0]["lr"]))
    if args.own_loop:
        while not worker.stopping:
            at = torch.randint(len(X), (20,))
            worker.step(F.cross_entropy(model(X[at]), Y[at]))
            PACE.wait(0.005)
    else:
        for x, y in worker.batches((X, Y), batch_size=20, epochs=100_000):
            worker.step(F.cross_entropy(model(x), y))
            PACE.wait(0.005)  # others need the cores

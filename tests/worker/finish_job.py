"""A training script whose end matters: batch norm, a validation function, and what may go wrong in it."""

import argparse
import os
import signal

import torch
from torch import nn
from torch.nn import functional as F

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--validate", choices=["none", "good", "raise", "die"], default="good")
parser.add_argument("--recalibrate", action="store_true")
args = parser.parse_args()

torch.manual_seed(0)
X = torch.randn(900, 20)
Y = (X @ torch.randn(20, 5)).argmax(1)
train, held_out = (X[:600], Y[:600]), (X[600:], Y[600:])
model = nn.Sequential(nn.Linear(20, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def accuracy(given):
    assert not given.training
    assert not torch.is_grad_enabled()
    if args.validate == "raise":
        raise LookupError("no such data")
    if args.validate == "die" and worker.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return (given(held_out[0]).argmax(1) == held_out[1]).float().mean()


with taut.join(
    model,
    optimizer,
    validate=None if args.validate == "none" else accuracy,
    recalibrate=(lambda: [train[0]]) if args.recalibrate else None,
) as worker:
    for x, y in worker.batches(train, batch_size=20, epochs=3):
        worker.step(F.cross_entropy(model(x), y))
print("score", worker.score, "rank", worker.rank)

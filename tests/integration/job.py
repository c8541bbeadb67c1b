"""A training script for the tests: a small classifier on made-up data. What it does wrong can be asked for."""

import argparse
import os
import threading

import torch
from torch import nn
from torch.nn import functional as F

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--hidden", type=int, default=32)
parser.add_argument("--optimizer", default="SGD")
parser.add_argument("--batch-norm", action="store_true")
parser.add_argument("--samples", type=int, default=2000)
parser.add_argument("--nan-at", type=int, default=-1, help="the loss is NaN at this step of worker 1")
parser.add_argument("--raise-at", type=int, default=-1, help="the script raises at this step of worker 1")
parser.add_argument("--own-loop", action="store_true")
parser.add_argument("--gate", help="train on until this file exists")
parser.add_argument(
    "--pace", type=float, default=0.01, help="with --gate, seconds between two steps: others need the cores"
)
parser.add_argument("--trail", help="folder for a file of each process with a line for each of its passes")
args = parser.parse_args()
PAUSE = threading.Event()  # never set

torch.manual_seed(0)
X = torch.randn(args.samples, 20)
Y = (X @ torch.randn(20, 5)).argmax(1)
torch.manual_seed(os.getpid())  # every process starts elsewhere: the run's state must win
hidden = args.hidden + int(os.environ.get("EXTRA_HIDDEN", "0"))
layers = [nn.Linear(20, hidden), nn.BatchNorm1d(hidden) if args.batch_norm else nn.Identity(), nn.ReLU()]
model = nn.Sequential(*layers, nn.Linear(hidden, 5))
kwargs = {"momentum": 0.9} if args.optimizer == "SGD" else {}
optimizer = getattr(torch.optim, args.optimizer)(model.parameters(), lr=0.05 if kwargs else 0.01, **kwargs)


def forever(worker):
    while not os.path.exists(args.gate):
        for batch in worker.batches((X, Y), batch_size=20):
            yield batch
            PAUSE.wait(args.pace)
        if args.trail:
            with open(os.path.join(args.trail, str(os.getpid())), "a") as trail:
                trail.write("a pass\n")
    yield from worker.batches((X, Y), batch_size=20)


with taut.join(model, optimizer) as worker:
    if "HOLD" in os.environ:  # a pipe: as if it read its data, until somebody writes
        open(os.environ["HOLD"]).close()
    batches = forever(worker) if args.gate else worker.batches((X, Y), batch_size=20, epochs=args.epochs)
    for x, y in batches:
        loss = F.cross_entropy(model(x), y)
        if worker.rank == 1 and worker.steps == args.raise_at:
            raise RuntimeError("the script broke on purpose")
        if worker.rank == 1 and worker.steps == args.nan_at:
            loss = loss * float("nan")
        if args.own_loop:
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            worker.exchange(loss)
        else:
            worker.step(loss)
model.eval()
print("accuracy", (model(X).argmax(1) == Y).float().mean().item(), "samples", worker.samples)

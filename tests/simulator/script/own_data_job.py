"""Workers with data of their own, 20 samples more on each than on the one before."""

import argparse

import torch

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--outer", action="store_true", help="ask for pass after pass")
parser.add_argument("--empty", type=int, default=-1, help="this worker has no data")
args = parser.parse_args()

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with taut.join(model, optimizer, validate=lambda model: float(model.bias.detach())) as worker:
    count = 0 if worker.rank == args.empty else 20 * (worker.rank + 1)
    numbers = torch.arange(count) + 1000 * worker.rank
    seen = []
    for epochs in [None] * args.epochs if args.outer else [args.epochs]:
        for own in worker.batches(numbers, batch_size=20, epochs=epochs, own=True):
            seen += own.tolist()
            worker.step(model(torch.ones(4)).sum() * (worker.rank + 1))
    assert sorted(seen) == sorted(args.epochs * numbers.tolist())

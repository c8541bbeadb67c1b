"""A script that ends the run by a rule of its own, on whichever worker the rule holds."""

import argparse

import torch

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--by", type=int, default=0, help="the worker whose rule holds")
parser.add_argument("--own-loop", action="store_true", help="read data without taut")
parser.add_argument("--clients", action="store_true")
args = parser.parse_args()

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
numbers = torch.arange(6000)


def step(worker: taut.Worker) -> None:
    worker.step(model(torch.ones(4)).square().sum())
    if worker.rank == args.by and worker.steps == 5:
        worker.end_run("five steps are enough")


with taut.join(model, optimizer) as worker:
    if args.own_loop:
        for _ in range(300):
            step(worker)
    elif args.clients:
        for round in worker.rounds([numbers[:20]] * 6, 50):
            for client in round:
                for _batch in client.batches(batch_size=10):
                    step(worker)
    else:
        for _batch in worker.batches(numbers, batch_size=10):
            step(worker)

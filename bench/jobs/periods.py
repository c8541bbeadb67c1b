"""A small perceptron on scikit-learn's digits with plain SGD, many small steps: how rarely may workers talk? For a
simulation, by ``bench/published.py``."""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.nn import functional

import taut
from taut.cli.jobs.digits import accuracy, digits

HIDDEN = 128


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="decides which samples are held out, and the first weights")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rate", type=float, required=True, help="learning rate")
    parser.add_argument("--batch", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    train, held_out = digits(args.seed)
    model = network(args.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.rate)
    with taut.join(model, optimizer, validate=lambda one: 100.0 * accuracy([one], held_out)) as worker:
        for x, y in worker.batches(train, batch_size=args.batch, epochs=args.epochs):
            worker.step(functional.cross_entropy(model(x), y))


if __name__ == "__main__":
    main()

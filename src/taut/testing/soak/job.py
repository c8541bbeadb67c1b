"""The script of the soak: a few hundred parameters, a few samples, and a tally of what was trained on."""

from __future__ import annotations

import argparse

import taut
from taut.testing.soak.laws import TALLY


def main() -> None:
    import torch
    from torch import nn
    from torch.nn import functional

    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=160)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--one-by-one", action="store_true", help="ask for each pass when the one before is over")
    given = parser.parse_args()
    x = torch.randn(given.samples, 6, generator=torch.Generator().manual_seed(0))
    y, indices = x[:, :3].argmax(dim=1), torch.arange(given.samples)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=given.momentum)
    with taut.join(model, optimizer) as worker:
        for epochs in [None] * given.epochs if given.one_by_one else [given.epochs]:
            for inputs, targets, samples in worker.batches((x, y, indices), batch_size=4, epochs=epochs):
                TALLY.begun.update(samples.tolist())
                worker.step(functional.cross_entropy(model(inputs), targets))
                TALLY.ended.update(samples.tolist())


if __name__ == "__main__":
    main()

"""Workers that only mix: the first step puts noise of each worker's own into its weights, and no step moves them again.
So what is left of their disagreement is the doing of the mixing alone. For a simulation, by ``bench/published.py``."""

from __future__ import annotations

import argparse

import torch
from torch import nn

import taut

ELEMENTS = 256  # noise in so many directions has a part in every mode of the mixing matrix


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, required=True, help="of all workers together: one for each step")
    args = parser.parse_args()
    model = nn.Linear(ELEMENTS, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with taut.join(model, optimizer) as worker:
        for (x,) in worker.batches((torch.ones(args.samples, ELEMENTS),), batch_size=1, epochs=1):
            if worker.steps == 0:
                own = torch.Generator().manual_seed(worker.rank)
                with torch.no_grad():
                    model.weight += torch.randn(model.weight.shape, generator=own)
            worker.step(model(x).mean())


if __name__ == "__main__":
    main()

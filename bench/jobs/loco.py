"""A character transformer of 0.8 million parameters on tiny Shakespeare, as a worker of a run: for
``bench/quality/loco.py``, in simulation. AdamW or Muon, warm-up and cosine, a score of the model that comes out."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import shakespeare

from compression import joined
from taut.optim import Muon, muon_groups

WIDTH, LAYERS = 128, 4
WARM_UP = 20  # steps
LAST = 0.1  # of the rate, in the last step


def share_of_rate(step: int, steps: int) -> float:
    """Return the rate of a step in shares of the highest.

    >>> share_of_rate(0, 100), share_of_rate(20, 100), round(share_of_rate(100, 100), 3)
    (0.05, 1.0, 0.1)
    """
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    done = min(1.0, (step - WARM_UP) / max(1, steps - WARM_UP))
    return LAST + (1.0 - LAST) * 0.5 * (1.0 + math.cos(math.pi * done))


def optimizer_of(name: str, model: shakespeare.Transformer, rate: float) -> torch.optim.Optimizer:
    if name == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.99), weight_decay=0.1)
    groups = muon_groups(model, model.head, model.position)
    return Muon(groups, lr=rate, betas=(0.9, 0.99), weight_decay=0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="input.txt")
    parser.add_argument("--samples", type=int, required=True, help="windows, of all workers together")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--batch", type=int, default=8, help="of one worker")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--optimizer", choices=["adamw", "muon"], default="adamw")
    parser.add_argument("--rate", type=float, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    corpus = shakespeare.Text(args.data)
    torch.manual_seed(args.seed)
    model = shakespeare.Transformer(len(corpus.alphabet), WIDTH, LAYERS)
    optimizer = optimizer_of(args.optimizer, model, args.rate)
    steps = args.samples // (args.workers * args.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: share_of_rate(step, steps))
    starts = corpus.starts(args.samples, args.seed)
    with joined(model, optimizer, lambda one: shakespeare.validation_loss(one, corpus), "lower") as worker:
        for part in worker.batches(starts, batch_size=args.batch, epochs=1):
            worker.step(shakespeare.loss_of(model, *corpus.windows(corpus.train, part)))
            schedule.step()


if __name__ == "__main__":
    main()

"""Three tasks whose steps take from 2 to about 100 ms on one core: an MLP and a CNN on MNIST with SGD, and a character
transformer on tiny Shakespeare with AdamW. They train until they are stopped."""

from __future__ import annotations

import argparse
from pathlib import Path

import mnist
import shakespeare
import torch
import torch.nn.functional as F
from torch import nn

import taut

ENDLESS = 10_000  # passes


def images(args: argparse.Namespace, model: nn.Module, batch: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with taut.join(model, optimizer) as worker:
        data = mnist.load(args.data / "mnist", "train")
        for x, y in worker.batches(data, batch_size=batch, epochs=ENDLESS):
            worker.step(F.cross_entropy(model(x), y))


def letters(args: argparse.Namespace) -> None:
    text = shakespeare.Text(next((args.data / "tinyshakespeare").glob("*.txt")))
    model = shakespeare.network(text, 0)
    with taut.join(model, torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)) as worker:
        for starts in worker.batches(text.starts(100_000, 0), batch_size=32, epochs=ENDLESS):
            worker.step(shakespeare.loss_of(model, *text.windows(text.train, starts)))


def cnn() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--task", choices=["mlp", "cnn", "transformer"], required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.task == "transformer":
        letters(args)
    elif args.task == "cnn":
        images(args, cnn(), 64)
    else:
        images(args, mnist.network(0), 32)


if __name__ == "__main__":
    main()

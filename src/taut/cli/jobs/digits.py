"""The script that ``taut demo`` and ``taut simulate digits`` run: ordinary training, on scikit-learn's bundled digits.

It differs from ``examples/digits.py`` in that it notes every step's loss for the plot.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import taut

TEST_SHARE = 0.2
BATCH = 32


def network(seed: int) -> nn.Sequential:
    """Return a small perceptron for 8 x 8 pixels."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def digits(seed: int) -> tuple[TensorDataset, TensorDataset]:
    """Return the training samples and the test samples; ``seed`` decides which is which."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    x = torch.tensor(pixels, dtype=torch.float32)[order] / 16
    y = torch.tensor(labels, dtype=torch.int64)[order]
    held_out = int(TEST_SHARE * len(y))
    return TensorDataset(x[held_out:], y[held_out:]), TensorDataset(x[:held_out], y[:held_out])


def accuracy(models: Sequence[nn.Module], samples: TensorDataset) -> float:
    """Return the share of samples that the models get right, by the mean of their probabilities."""
    x, y = samples.tensors
    with torch.no_grad():
        votes: Tensor = torch.stack([model(x).softmax(dim=1) for model in models]).mean(dim=0)
    return float((votes.argmax(dim=1) == y).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--losses", type=Path, help="folder for the losses of each worker")
    given = parser.parse_args()
    model = network(given.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    train, held_out = digits(given.seed)
    noted: list[tuple[float, int, float]] = []
    with taut.join(model, optimizer, validate=lambda model: accuracy([model], held_out)) as worker:
        for x, y in worker.batches(train, batch_size=BATCH, epochs=given.epochs):
            loss = functional.cross_entropy(model(x), y)
            worker.step(loss)
            noted.append((time.time(), len(y), loss.item()))
    if given.losses is not None:
        (given.losses / f"losses-{worker.rank}.json").write_text(json.dumps(noted))


if __name__ == "__main__":
    main()

"""The MNIST MLP of ``mnist.py`` or the character transformer of ``shakespeare.py``, as a worker of a run, with a score of
the model that comes out: for ``bench/compression.py``, in simulation.

Scores are wanted at the end alone. A simulation also asks while it trains, and a pass over the test set takes as long as
some thirty steps: until the data is used up the answer is 0.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
import mnist as digits
import shakespeare


@contextmanager
def joined(
    model: nn.Module, optimizer: torch.optim.Optimizer, score: Callable[[nn.Module], float], better: Any
) -> Iterator[Any]:
    """A worker whose model is scored once the block is over."""
    import taut

    trained = False

    def validate(one: nn.Module) -> float:
        return score(one) if trained else 0.0

    with taut.join(model, optimizer, validate=validate, better=better) as worker:
        yield worker
        trained = True


def mnist(args: argparse.Namespace) -> None:
    """Accuracy in percent on the test set."""
    x, y = digits.load(args.data, "train", args.samples)
    held_x, held_y = digits.load(args.data, "t10k")
    model = digits.network(args.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.rate or 0.1, momentum=args.momentum)

    def accuracy(one: nn.Module) -> float:
        answers = one(held_x)
        right = (answers.argmax(1) == held_y).float().mean().item()
        return 100.0 * right if answers.isfinite().all() else float("nan")

    with joined(model, optimizer, accuracy, "higher") as worker:
        for images, labels in worker.batches((x, y), batch_size=args.batch or 64, epochs=args.epochs):
            worker.step(F.cross_entropy(model(images), labels))


def text(args: argparse.Namespace) -> None:
    """Loss in nats per character on held-out text. Adam's first moment is its momentum."""
    corpus = shakespeare.Text(args.data)
    model = shakespeare.network(corpus, args.seed)
    moments = (args.momentum, 0.999)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.rate or 4e-3, betas=moments, weight_decay=0.0)
    starts = corpus.starts(args.samples or 400 * 64, args.seed)
    with joined(model, optimizer, lambda one: shakespeare.validation_loss(one, corpus), "lower") as worker:
        for part in worker.batches(starts, batch_size=args.batch or 16, epochs=args.epochs):
            worker.step(shakespeare.loss_of(model, *corpus.windows(corpus.train, part)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["mnist", "text"])
    parser.add_argument("--data", type=Path, required=True, help="the folder of MNIST's files, or the text")
    parser.add_argument("--samples", type=int, default=None, help="of the training set, the first so many")
    parser.add_argument("--batch", type=int, default=None, help="of one worker: 64 images, 16 windows")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=None, help="learning rate: 0.1 and 0.004")
    parser.add_argument("--momentum", type=float, default=0.9)
    args = parser.parse_args()
    torch.set_num_threads(1)
    {"mnist": mnist, "text": text}[args.task](args)


if __name__ == "__main__":
    main()

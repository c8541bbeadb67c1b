"""MNIST digits: a perceptron, convolutions with batch norm, an autoencoder, and adapters that begin at zero."""

from __future__ import annotations

import gzip
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from task import DATA, Batch, Task, indices, warm_up_and_cosine
from torch import nn

HELD_OUT = 4000


@lru_cache
def images(part: str, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``count`` pictures of 28 x 28, mean 0, and their labels."""
    folder = DATA / "mnist"
    packed = [(folder / f"{part}-{kind}-ubyte.gz").read_bytes() for kind in ("images-idx3", "labels-idx1")]
    pixels = np.frombuffer(gzip.decompress(packed[0]), np.uint8, offset=16)
    labels = np.frombuffer(gzip.decompress(packed[1]), np.uint8, offset=8)
    x = torch.tensor(pixels[: 784 * count].reshape(-1, 1, 28, 28), dtype=torch.float32)
    return (x / 255.0 - 0.1307) / 0.3081, torch.tensor(labels[:count], dtype=torch.long)


def draw(generator: torch.Generator, size: int = 32) -> Batch:
    x, y = images("train", 60000)
    at = indices(len(x), size, generator)
    return x[at], y[at]


def classify(model: nn.Module, batch: Batch) -> torch.Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def held_out(model: nn.Module) -> float:
    """Return the cross entropy on pictures that no worker trained on."""
    return float(classify(model, images("t10k", HELD_OUT)))


def perceptron(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))


def convolutions(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, 2, 2, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, 2, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
        nn.Flatten(), nn.Linear(1024, 10),
    )  # fmt: skip


def bottleneck(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 128),
        nn.ReLU(),
        nn.Linear(128, 16),
        nn.Linear(16, 128),
        nn.ReLU(),
        nn.Linear(128, 784),
    )


def rebuild(model: nn.Module, batch: Batch) -> torch.Tensor:
    return F.mse_loss(model(batch[0]), batch[0].flatten(1))


def left_over(model: nn.Module) -> float:
    return float(rebuild(model, images("t10k", HELD_OUT)))


class Adapted(nn.Module):
    """A frozen linear layer, and a trained change of low rank that begins at zero: up(down(x))."""

    def __init__(self, inputs: int, outputs: int, rank: int = 8) -> None:
        super().__init__()
        self.frozen = nn.Linear(inputs, outputs).requires_grad_(False)
        self.down, self.up = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.frozen(x) + self.up(self.down(x))
        return out


def adapters(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    head = nn.Linear(512, 10)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return nn.Sequential(nn.Flatten(), Adapted(784, 512), nn.ReLU(), Adapted(512, 512), nn.ReLU(), head)


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=3e-3)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.05)


TASKS = {
    "perceptron, momentum": Task(perceptron, momentum, draw, classify, held_out, 400),
    "perceptron, Adam": Task(perceptron, adam, draw, classify, held_out, 400),
    "batch norm, momentum": Task(convolutions, momentum, draw, classify, held_out, 250, local=True),
    "batch norm, AdamW": Task(convolutions, adamw, draw, classify, held_out, 250, warm_up_and_cosine, local=True),
    "autoencoder, Adam": Task(bottleneck, adam, draw, rebuild, left_over, 400),
    "adapters, AdamW": Task(adapters, adamw, draw, classify, held_out, 300, warm_up_and_cosine),
}

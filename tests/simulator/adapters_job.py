"""Low-rank adapters on a frozen network: half of the weights that are trained begin at zero."""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--begin", type=float, default=0.0, help="the scale of the weights that begin at zero otherwise")
given = parser.parse_args()
digits = load_digits()
order = torch.randperm(1797, generator=torch.Generator().manual_seed(given.seed))
x = (torch.tensor(digits.data, dtype=torch.float32) / 16)[order]
y = torch.tensor(digits.target)[order]
torch.manual_seed(given.seed)


class Adapted(nn.Module):
    """A frozen layer, and the product of two small matrices, the second of which begins at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(64, 64).requires_grad_(False)
        self.a = nn.Parameter(torch.randn(8, 64) / 8)
        self.b = nn.Parameter(given.begin * torch.randn(64, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(x) + (x @ self.a.t()) @ self.b.t()


model = nn.Sequential(Adapted(), nn.ReLU(), Adapted(), nn.ReLU(), nn.Linear(64, 10).requires_grad_(False))
optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=0.01)


def accuracy(model: nn.Module) -> float:
    return float((model(x[1400:]).argmax(dim=1) == y[1400:]).float().mean())


with taut.join(model, optimizer, validate=accuracy) as worker:
    for inputs, targets in worker.batches((x[:1400], y[:1400]), batch_size=16, epochs=3):
        worker.step(functional.cross_entropy(model(inputs), targets))

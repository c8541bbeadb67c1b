"""Train a small network on scikit-learn's bundled digits.

    python examples/digits.py                       # one worker
    taut run --workers 4 examples/digits.py         # four, asynchronously, with updates of a few signs
    taut run --workers 4 --codec dense examples/digits.py --epochs 20

Needs scikit-learn (pip install 'taut[demo]').
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--lr", type=float, default=0.05)
options = parser.parse_args()

pixels, labels = load_digits(return_X_y=True)
x, y = torch.tensor(pixels, dtype=torch.float32) / 16, torch.tensor(labels)
shuffled = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
test, train = shuffled[:360], shuffled[360:]

model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)

with taut.join(model, optimizer) as worker:
    for inputs, targets in worker.batches((x[train], y[train]), batch_size=32, epochs=options.epochs):
        worker.step(functional.cross_entropy(model(inputs), targets))

# Here the run is drained: the model is the same on every worker, and the launcher has written it to a file.
with torch.no_grad():
    right = (model(x[test]).argmax(dim=1) == y[test]).float().mean()
print(f"worker {worker.rank}: {worker.samples} samples trained, {100 * right:.1f}% of the test samples right")

"""Cut the convolutions of an AlexNet-like network by their filters, and its large layers by columns and rows.

taut run --workers 4 --island 2 examples/filters_alexnet.py       # two islands of two processes each
"""

import argparse

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
options = parser.parse_args()

# Images with a bright square; the class is the quarter that it is in.
generator = torch.Generator().manual_seed(1)
y = torch.randint(4, (512,), generator=generator)
x = 0.3 * torch.randn(512, 3, 16, 16, generator=generator)
for number, quarter in enumerate(y.tolist()):
    row, column = 8 * (quarter // 2), 8 * (quarter % 2)
    x[number, :, row : row + 8, column : column + 8] += 0.5

taut.parallel.island()
torch.manual_seed(0)
model = nn.Sequential(
    taut.parallel.filters(nn.Conv2d(3, 16, 5, padding=2)),
    nn.ReLU(),
    nn.MaxPool2d(2),
    taut.parallel.filters(nn.Conv2d(16, 32, 3, padding=1)),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    taut.parallel.columns(nn.Linear(32 * 16, 64), gather=False),
    nn.ReLU(),
    taut.parallel.rows(nn.Linear(64, 4), split=True),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

with taut.join(model, optimizer) as worker:
    for inputs, targets in worker.batches((x, y), batch_size=32, epochs=options.epochs):
        worker.step(cross_entropy(model(inputs), targets))

with torch.no_grad():
    print(f"accuracy {(model(x).argmax(1) == y).float().mean():.3f} after {worker.steps} steps")

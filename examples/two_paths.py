"""Give each of two paths that see the same image to a process of its own, as AlexNet does with its two halves.

taut run --workers 4 --island 2 examples/two_paths.py             # two islands of two processes each
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


def path(kernel: int, channels: int) -> nn.Module:
    """Return one path: it looks at the image with filters of its own size."""
    return nn.Sequential(nn.Conv2d(3, channels, kernel, padding=kernel // 2), nn.ReLU(), nn.MaxPool2d(4))


taut.parallel.island()
torch.manual_seed(0)
model = nn.Sequential(
    taut.parallel.paths([path(3, 8), path(5, 6)]),  # their outputs are concatenated: 14 channels
    nn.Flatten(),
    nn.Linear(14 * 16, 4),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

with taut.join(model, optimizer) as worker:
    for inputs, targets in worker.batches((x, y), batch_size=32, epochs=options.epochs):
        worker.step(cross_entropy(model(inputs), targets))

with torch.no_grad():
    print(f"accuracy {(model(x).argmax(1) == y).float().mean():.3f} after {worker.steps} steps")

"""Cut the layers of an MLP by their columns and rows: each process of an island computes a part of every layer.

python examples/columns_mlp.py                                    # one process, the whole model
taut run --workers 4 --island 2 examples/columns_mlp.py           # two islands of two processes each
"""

import argparse

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=4)
options = parser.parse_args()

generator = torch.Generator().manual_seed(1)
x = torch.randn(2000, 20, generator=generator)
y = (x[:, 0] * x[:, 1] > 0).long()

taut.parallel.island()  # the processes of the island meet
torch.manual_seed(0)  # and build the same model
model = nn.Sequential(
    taut.parallel.columns(nn.Linear(20, 64), gather=False),  # each process has its part of the 64 outputs,
    nn.ReLU(),
    taut.parallel.rows(nn.Linear(64, 16), split=True),  # which are its part of the inputs here
    nn.LayerNorm(16),
    nn.Linear(16, 2),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

with taut.join(model, optimizer) as worker:
    for inputs, targets in worker.batches((x, y), batch_size=32, epochs=options.epochs):
        worker.step(cross_entropy(model(inputs), targets))

with torch.no_grad():
    print(f"accuracy {(model(x).argmax(1) == y).float().mean():.3f} after {worker.steps} steps")

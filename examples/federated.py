"""Train one model on the data of 50 clients, which may outnumber the processes: federated averaging (FedAvg).

    python examples/federated.py                      # one process trains all clients in each round
    taut run --workers 4 --clients 50 --strategy fedavg:fraction=0.2 examples/federated.py   # four, ten clients

Each client has points of one or two of five classes only. In a round each of the drawn clients makes two passes over its
own data, and the new model is the mean of theirs, weighted by their samples.
"""

import argparse

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=20)
parser.add_argument("--clients", type=int, default=50, help="as `taut run --clients` says")
options = parser.parse_args()

# Five clouds of points in the plane, one for each class; the last 500 points are for the test.
generator = torch.Generator().manual_seed(1)
y = torch.randint(5, (3000,), generator=generator)
centers = torch.tensor([[0.0, 0.0], [3.0, 0.0], [-3.0, 0.0], [0.0, 3.0], [0.0, -3.0]])
x = centers[y] + 0.7 * torch.randn(3000, 2, generator=generator)
parts = taut.data.split(y[:2500], options.clients, "shards:2")  # two pieces of the points sorted by class

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

with taut.join(model, optimizer) as worker:
    for round in worker.rounds(parts, options.rounds):
        for client in round:
            for inputs, targets in client.batches((x[client.data], y[client.data]), batch_size=10, epochs=2):
                worker.step(cross_entropy(model(inputs), targets))
        with torch.no_grad():  # the model is the mean of all clients of the round
            right = (model(x[2500:]).argmax(1) == y[2500:]).float().mean().item()
        worker.log(accuracy=right)
        if (round.number + 1) % 5 == 0:
            worker.print(f"round {round.number + 1}: {100 * right:.1f}% right")

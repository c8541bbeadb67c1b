"""Clients with known data, each 10 samples more than the one before, or equal ones; one weight, or a small network.

The one weight: a step at client k moves it by -0.01 (k + 1)."""

import argparse

import torch

import taut

parser = argparse.ArgumentParser()
parser.add_argument("--clients", type=int, default=6)
parser.add_argument("--rounds", type=int, default=2)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--equal", action="store_true", help="every client has 20 samples")
parser.add_argument("--network", action="store_true", help="train a network, with batch norm and Adam")
parser.add_argument("--own", action="store_true", help="no rounds: worker k is client k, and trains by worker.batches")
parser.add_argument("--drop", type=int, default=-1, help="this client is dropped after its training")
parser.add_argument("--leased", action="store_true", help="ask for leased data")
args = parser.parse_args()


def data_of(number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(number)
    count = 20 if args.equal else 10 * (number + 1)
    return torch.randn(count, 4, generator=generator)


torch.manual_seed(0)
if args.network:
    layers = [torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Linear(8, 1)]
    model: torch.nn.Module = torch.nn.Sequential(*layers)
    optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
elif args.own or args.equal:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
else:
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
moved = args.equal or args.own or args.network


def loss_of(batch: torch.Tensor, number: int) -> torch.Tensor:
    if moved:
        return (model(batch) - batch.sum(1, keepdim=True)).square().mean()
    return model(torch.ones(1)).sum() * (number + 1)


with taut.join(model, optimizer, validate=lambda model: float(next(model.parameters()).detach().sum())) as worker:
    if args.leased:
        for _batch in worker.batches(data_of(0), 10):
            pass
    elif args.own:
        for _ in range(args.rounds):
            for batch in worker.batches(data_of(worker.rank), batch_size=10, own=True, epochs=args.epochs):
                worker.step(loss_of(batch, worker.rank))
    else:
        for round in worker.rounds(data_of, args.rounds):
            before = next(model.parameters()).detach().clone()
            for client in round:
                assert torch.equal(next(model.parameters()).detach(), before), (
                    "each begins with the round's first weights"
                )
                assert not optimizer.state
                for batch in client.batches(batch_size=10, epochs=args.epochs):
                    worker.step(loss_of(batch, client.number))
                assert client.samples == args.epochs * len(client.data)
                if client.number == args.drop:
                    client.drop()

"""Federated averaging on MNIST with 100 clients, as in McMahan et al. 2017: the 2NN (784-200-200-10) or the CNN (two 5x5
convolutions of 32 and 64 channels, each with 2x2 pooling, 512 units), plain SGD in batches of 10.

Each worker writes ``OUT/RANK.json``: the test accuracy after each round, up to the first that reaches the target. All
workers see the same model, so all stop after the same round.

``--state FILE --for-s S``: a worker alone stops after the first round that ends later than that, and leaves its weights
and accuracies in the file, from which the next call goes on. A round begins with the weights alone, so nothing else is
needed; the next call must be given other seeds (``--seed`` of ``taut run`` and ``seed=`` of ``fedavg``), or it would draw
the first call's clients again.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from mnist import load
from torch import nn

import taut

CLIENTS = 100
SIZES = {"2nn": 199_210, "cnn": 1_663_370}  # parameters, as the paper says


def network(kind: str, seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    if kind == "2nn":
        return nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        *(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(7 * 7 * 64, 512), nn.ReLU(), nn.Linear(512, 10)),
    )


@torch.no_grad()
def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    right = sum(int((model(a).argmax(1) == b).sum()) for a, b in zip(x.split(500), y.split(500), strict=True))
    return right / len(y)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", choices=tuple(SIZES), default="2nn")
    parser.add_argument("--split", default="iid", help="iid, or shards:2 for two labels per client")
    parser.add_argument("--epochs", type=int, default=5, help="E: a client's passes over its data in a round")
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=50, help="at most")
    parser.add_argument("--target", type=float, default=0.97)
    parser.add_argument("--samples", type=int, default=None, help="of the training set, the first so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", type=Path, help="where a worker alone goes on, and where it stops")
    parser.add_argument("--for-s", type=float, default=float("inf"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    (x, y), test = load(args.data, "train", args.samples), load(args.data, "t10k")
    parts = taut.data.split(y, CLIENTS, args.split, seed=args.seed)
    model = network(args.model, args.seed)
    assert sum(each.numel() for each in model.parameters()) == SIZES[args.model]
    optimizer = torch.optim.SGD(model.parameters(), lr=args.rate)
    accuracies: list[float] = []
    if args.state and args.state.exists():
        before = torch.load(args.state, weights_only=True)
        model.load_state_dict(before["model"])
        accuracies = before["accuracies"]
    with taut.join(model, optimizer) as worker:
        begun_s = time.monotonic()
        for round in worker.rounds(parts, args.rounds - len(accuracies)):
            for client in round:
                for inputs, targets in client.batches((x[client.data], y[client.data]), 10, epochs=args.epochs):
                    worker.step(F.cross_entropy(model(inputs), targets))
            accuracies.append(accuracy(model, *test))
            worker.print(f"round {len(accuracies)}: {accuracies[-1]:.4f}", flush=True)
            if args.state:
                part = args.state.with_suffix(".part")
                torch.save({"model": model.state_dict(), "accuracies": accuracies}, part)
                os.replace(part, args.state)
            if accuracies[-1] >= args.target or time.monotonic() - begun_s > args.for_s:
                break
        record = {"accuracies": accuracies, "seconds": time.monotonic() - begun_s, "steps": worker.steps}
    part = args.out / f"{worker.rank}.json.part"
    part.write_text(json.dumps(record))
    os.replace(part, args.out / f"{worker.rank}.json")


if __name__ == "__main__":
    main()

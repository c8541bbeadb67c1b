"""The MNIST MLP (784-512-512-10), SGD with momentum, one torch thread: as a worker of a run, or plain, without taut.

Each process writes ``OUT/RANK.json``: when its measured part began and ended (the system's monotonic clock, which all
processes of a machine share), the samples in it, and a worker's own statistics at the end of the data, before the drain.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

WARM_STEPS = 20  # not measured: first calls allocate, and a codec watches before it sends


def load(folder: Path, part: str, limit: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Images (samples, 784) in 0..1 and labels, from the IDX files; ``part`` is "train" or "t10k"."""
    with gzip.open(folder / f"{part}-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)[:limit]
    with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)[:limit]
    return torch.from_numpy(pixels.astype(np.float32) / 255), torch.from_numpy(labels.astype(np.int64))


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def shuffled(x: torch.Tensor, y: torch.Tensor, batch: int, epochs: int, seed: int) -> Iterator[tuple[torch.Tensor, ...]]:
    """What a plain script does."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        for start in range(0, len(x), batch):
            indices = order[start : start + batch]
            yield x[indices], y[indices]


class Meter:
    """Counts samples from the end of the warm-up on."""

    def __init__(self) -> None:
        self.steps = self.samples = 0
        self.begun_s, self.begun_cpu_s = time.monotonic(), time.process_time()

    def step(self, samples: int) -> None:
        self.steps += 1
        if self.steps == WARM_STEPS:
            self.samples, self.begun_s, self.begun_cpu_s = 0, time.monotonic(), time.process_time()
        else:
            self.samples += samples

    def record(self) -> dict[str, object]:
        return {
            "begun_s": self.begun_s,
            "ended_s": time.monotonic(),
            "samples": self.samples,
            "steps": self.steps - WARM_STEPS,
            "cpu_s": time.process_time() - self.begun_cpu_s,  # of all threads
        }


def plain(args: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, object]:
    """One process of ``--peers``, each with its share of the samples, all starting together."""
    x, y = load(args.data, "train", args.samples)
    x, y = x[args.rank :: args.peers], y[args.rank :: args.peers]
    (args.out / f"{args.rank}.ready").touch()
    while len(list(args.out.glob("*.ready"))) < args.peers:
        time.sleep(0.005)
    meter = Meter()
    for inputs, targets in shuffled(x, y, args.batch, args.epochs, args.seed):
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        meter.step(len(targets))
    return meter.record()


def joined(args: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, dict[str, object]]:
    import msgspec

    import taut

    x, y = load(args.data, "train", args.samples)
    with taut.join(model, optimizer) as worker:
        meter = Meter()
        for inputs, targets in worker.batches((x, y), batch_size=args.batch, epochs=args.epochs):
            worker.step(F.cross_entropy(model(inputs), targets))
            meter.step(len(targets))
        record = meter.record()
        record["statistics"] = msgspec.structs.asdict(worker.statistics())
        rank = worker.rank
    return rank, record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--samples", type=int, default=None, help="of the training set, the first so many")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plain", action="store_true", help="without taut")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--peers", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model = network(args.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if args.plain:
        rank, record = args.rank, plain(args, model, optimizer)
        assert "taut" not in sys.modules
        if args.peers == 1:
            torch.save(model.state_dict(), args.out / "model.pt")
    else:
        rank, record = joined(args, model, optimizer)
    part = args.out / f"{rank}.json.part"
    part.write_text(json.dumps(record))
    os.replace(part, args.out / f"{rank}.json")


if __name__ == "__main__":
    main()

"""Passes over MNIST by a small MLP with SGD and momentum, as a worker of a run. A sample takes a worker ``--sample``
seconds: steps are padded by sleeping, as if each worker had a device of its own; the last one is several times slower.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from mnist import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--samples", type=int, default=12_000, help="of the training set")
    parser.add_argument("--sample", type=float, default=0.001, help="seconds that a sample takes at least")
    parser.add_argument("--straggler", type=float, default=1.0, help="how many times slower the last worker is")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--global-batch", type=int)
    args = parser.parse_args()
    torch.set_num_threads(1)
    x, y = (part[: args.samples] for part in load(args.data, "train"))
    held_x, held_y = load(args.data, "t10k")
    torch.manual_seed(args.seed)
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    import taut

    def accuracy(one: nn.Module) -> float:
        return 100.0 * (one(held_x).argmax(1) == held_y).float().mean().item()

    with taut.join(model, optimizer, validate=accuracy) as worker:
        sample_s = args.sample * (args.straggler if worker.rank == worker.workers - 1 else 1.0)
        sizes: list[int] = []
        begun_s = time.monotonic()
        for _ in range(args.epochs):
            for images, labels in worker.batches((x, y), args.batch_size, global_batch=args.global_batch):
                due_s = time.monotonic() + sample_s * len(images)
                loss = F.cross_entropy(model(images), labels)
                time.sleep(max(0.0, due_s - time.monotonic()))
                worker.step(loss)
                sizes.append(len(images))
        record = {"begun_s": begun_s, "ended_s": time.monotonic(), "samples": sum(sizes), "sizes": sizes}
        rank = worker.rank
    part = args.out / f"{rank}.part"
    part.write_text(json.dumps(record))
    part.replace(args.out / f"{rank}.json")


if __name__ == "__main__":
    main()

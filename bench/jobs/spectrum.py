"""One pass over half of MNIST by a small MLP with SGD and momentum, as a worker of a run, at a pace that is set.

Every step is padded by sleeping to ``--step`` seconds, as if it ran on a device of its own: so a machine with two cores
can hold four workers that do not compete for them, and a straggler is one whose steps are padded to several times that.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import msgspec
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from mnist import load


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--samples", type=int, default=30_000, help="of the training set")
    parser.add_argument("--step", type=float, default=0.03, help="seconds that a step lasts at least")
    parser.add_argument("--straggler", type=float, default=1.0, help="how many times slower the last worker is")
    parser.add_argument("--momentum", type=float, default=0.9)
    args = parser.parse_args()
    torch.set_num_threads(1)
    x, y = (part[: args.samples] for part in load(args.data, "train"))
    held_x, held_y = load(args.data, "t10k")
    model = network(args.seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=args.momentum)

    import taut

    def accuracy(one: nn.Module) -> float:
        return 100.0 * (one(held_x).argmax(1) == held_y).float().mean().item()

    with taut.join(model, optimizer, validate=accuracy) as worker:
        pace_s = args.step * (args.straggler if worker.rank == worker.workers - 1 else 1.0)
        samples, begun_s = 0, time.monotonic()
        steps: list[tuple[float, int, float]] = []  # when each ended, its samples, and all waiting until then
        for images, labels in worker.batches((x, y), batch_size=64, epochs=args.epochs):
            due_s = time.monotonic() + pace_s
            loss = F.cross_entropy(model(images), labels)
            time.sleep(max(0.0, due_s - time.monotonic()))
            worker.step(loss)
            samples += len(images)
            steps.append((time.monotonic(), len(images), worker.watch.seconds["wait"]))
        ended_s = time.monotonic()
        record = {"begun_s": begun_s, "ended_s": ended_s, "samples": samples, "steps": worker.steps, "cpu_s": 0.0}
        record["ends"] = steps
        record["statistics"] = msgspec.structs.asdict(worker.statistics())
        rank = worker.rank
    part = args.out / f"{rank}.part"
    part.write_text(json.dumps(record))
    part.replace(args.out / f"{rank}.json")


if __name__ == "__main__":
    main()

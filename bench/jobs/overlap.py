"""An MLP of 8 million parameters, trained for a few steps; each worker writes how long its steps took."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import torch
from torch import nn

import taut

WIDTH, LAYERS, BATCH, WARM_STEPS = 1000, 8, 192, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=20, help="of all workers together")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(BATCH * args.steps, WIDTH)
    taken_s: list[float] = []
    with taut.join(model, optimizer) as worker:
        begun_s = time.monotonic()
        for inputs in worker.batches(x, batch_size=BATCH, epochs=1):
            worker.step((model(inputs) - inputs).square().mean())
            ended_s = time.monotonic()
            taken_s.append(ended_s - begun_s)
            begun_s = ended_s
        split = worker.watch.seconds
        record = {
            "step_s": statistics.median(taken_s[WARM_STEPS:]),
            "wait_s": split["wait"],
            "compute_s": split["compute"],
        }
        rank = worker.rank
    part = args.out / f"{rank}.json.part"
    part.write_text(json.dumps(record))
    os.replace(part, args.out / f"{rank}.json")


if __name__ == "__main__":
    main()

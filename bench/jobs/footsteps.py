"""A small classifier whose steps take as long as they are told, and which writes down when each of them ended: for
``bench/going_on.py``. It trains until somebody ends it."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import taut


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder; the file is named after the process")
    parser.add_argument("--step", type=float, default=0.05, help="seconds")
    args = parser.parse_args()
    torch.set_num_threads(1)
    made = torch.Generator().manual_seed(0)
    x = torch.randn(4_000, 20, generator=made)
    y = (x @ torch.randn(20, 5, generator=made)).argmax(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with taut.join(model, optimizer) as worker, (args.out / f"{os.getpid()}.steps").open("w") as steps:
        while True:
            for inputs, targets in worker.batches((x, y), batch_size=16):
                time.sleep(args.step)
                worker.step(functional.cross_entropy(model(inputs), targets))
                steps.write(f"{time.time():.4f}\n")
                steps.flush()


if __name__ == "__main__":
    main()

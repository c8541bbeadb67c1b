"""A small classifier whose steps take as long as they are told, so that many workers fit on few cores. It trains until a
file exists, then one pass more: for ``bench/chaos.py``. A pass of six workers with steps of 50 ms takes 12.5 s: nobody
has data of a pass that no worker has asked for, so with much shorter ones a supervisor's death would be felt at each
end."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import taut


def until(gate: Path, worker: Any, data: tuple[torch.Tensor, ...]) -> Iterator[tuple[torch.Tensor, ...]]:
    while not gate.exists():
        yield from worker.batches(data, batch_size=16)
    yield from worker.batches(data, batch_size=16, epochs=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gate", type=Path, required=True)
    parser.add_argument("--step", type=float, default=0.05, help="seconds")
    args = parser.parse_args()
    torch.set_num_threads(1)
    made = torch.Generator().manual_seed(0)
    x = torch.randn(24_000, 20, generator=made)
    y = (x @ torch.randn(20, 5, generator=made)).argmax(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with taut.join(model, optimizer) as worker:
        for inputs, targets in until(args.gate, worker, (x, y)):
            time.sleep(args.step)
            worker.step(functional.cross_entropy(model(inputs), targets))


if __name__ == "__main__":
    main()

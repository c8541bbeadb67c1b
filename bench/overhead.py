"""What does taut cost a script that runs alone? ``python train.py`` with taut.join against the same loop without it.

Two copies of a model in one process, one driven by a plain loop and one by ``taut.join`` without a launcher, in turn in
blocks of a few steps of 20 ms or more; the ratio of neighbouring blocks, median.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Generator

import torch
import torch.nn.functional as F
from torch import nn

import taut
from processes import median_ratio
from report import Row, arguments, report, row

SAMPLES, BLOCK_STEPS = 8192, 4


def network() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(SAMPLES, 784, generator=generator), torch.randint(10, (SAMPLES,), generator=generator)


def plain_loop(batch: int) -> Generator[None, None, None]:
    """One step at each call of next."""
    x, y = data()
    model, optimizer = network()
    while True:
        for indices in torch.randperm(SAMPLES).split(batch):
            loss = F.cross_entropy(model(x[indices]), y[indices])
            loss.item()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            yield


def joined_loop(batch: int) -> Generator[None, None, None]:
    x, y = data()
    model, optimizer = network()
    with taut.join(model, optimizer) as worker:
        for inputs, targets in worker.batches((x, y), batch_size=batch, epochs=1_000_000):
            worker.step(F.cross_entropy(model(inputs), targets))
            yield


def timed(loop: Generator[None, None, None]) -> float:
    """Seconds per step, over a block."""
    begun = time.perf_counter()
    for _ in range(BLOCK_STEPS):
        next(loop)
    return (time.perf_counter() - begun) / BLOCK_STEPS


def batch_for(step_s: float) -> int:
    """The smallest batch (a power of two) whose step takes as long as that."""
    batch = 128
    while batch < SAMPLES // 4:
        loop = plain_loop(batch)
        timed(loop)
        if min(timed(loop) for _ in range(3)) >= step_s:
            break
        batch *= 2
    return batch


def measure(blocks: int) -> list[Row]:
    torch.set_num_threads(1)
    batch = batch_for(0.020)
    loops = {"plain": plain_loop(batch), "taut": joined_loop(batch)}
    times: dict[str, list[float]] = {name: [] for name in loops}
    for block in range(blocks + 1):  # the first is not counted
        names = list(loops) if block % 2 else list(loops)[::-1]
        for name in names:
            taken_s = timed(loops[name])
            if block:
                times[name].append(taken_s)
    for loop in loops.values():
        loop.close()
    return [
        row("samples in a batch", batch, ""),
        row("step of the plain loop", statistics.median(times["plain"]) * 1e3, "ms"),
        row("step with taut.join", statistics.median(times["taut"]) * 1e3, "ms"),
        row("with taut / without", median_ratio(times["taut"], times["plain"]), "x", at_most=1.03),
    ]


def main(args: argparse.Namespace) -> None:
    report("overhead", measure(30 if args.quick else 150), args)


if __name__ == "__main__":
    main(arguments(__doc__ or "").parse_args())

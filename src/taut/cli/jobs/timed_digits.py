"""The script that ``taut demo`` runs: a small convolutional network on distorted digits, for so many seconds.

It is ordinary training, but for what the demo needs. Each worker stands for a machine whose steps take ``STEP_S``: the
few milliseconds that they take here, and a pause, so that several workers do not fight for the cores of a laptop. One
worker may be slowed down and one may kill itself. Every step is noted in a file, and the first worker keeps copies of its
weights, whose loss on held-out digits it notes in the end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

import taut
from taut.cli.jobs.digits import digits

STEP_S = 0.02
BATCH, RATE = 32, 0.001
NOISE = 0.5  # standard deviation, where pixels go from 0 to 1
COPY_EVERY_S = 0.25


def network(seed: int) -> nn.Sequential:
    """Return a convolutional network of 76,000 weights for 8 x 8 pixels."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1024, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def distorted(x: Tensor, draw: torch.Generator) -> Tensor:
    """Return the digits shifted by up to a pixel each way, with noise: so few are not learnt by heart at once."""
    padded = functional.pad(x.view(-1, 8, 8), (1, 1, 1, 1))
    across, down = (torch.randint(0, 3, (len(x), 1), generator=draw) + torch.arange(8) for _ in range(2))
    moved = padded[torch.arange(len(x))[:, None, None], down[:, :, None], across[:, None, :]]
    return (moved + NOISE * torch.randn(moved.shape, generator=draw)).view(-1, 64)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate-times", type=float, default=1.0, help="what the learning rate is multiplied by")
    parser.add_argument("--slow", type=int, help="the worker that is slowed down")
    parser.add_argument("--slow-times", type=float, default=2.0)
    parser.add_argument("--kill", type=int, help="the worker that is killed")
    parser.add_argument("--kill-after", type=float, default=0.0, help="seconds")
    parser.add_argument("--notes", type=Path, required=True, help="folder for what is noted")
    given = parser.parse_args()
    model = network(given.seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE * given.rate_times)
    train, held_out = digits(given.seed)
    copies: list[tuple[float, dict[str, Tensor]]] = []
    began_s = used_s = 0.0
    with taut.join(model, optimizer) as worker, open(given.notes / f"steps-{worker.rank}.jsonl", "w") as notes:
        step_s = STEP_S * (given.slow_times if worker.rank == given.slow else 1.0)
        draw = torch.Generator().manual_seed(1000 * given.seed + worker.rank)
        for x, y in worker.batches(train, batch_size=BATCH, epochs=1_000_000):
            began_s, busy_s = began_s or time.time(), time.thread_time()
            time.sleep(max(0.0, step_s - used_s))  # computing took so long the last time
            worker.step(functional.cross_entropy(model(distorted(x, draw)), y))
            now_s, used_s = time.time(), time.thread_time() - busy_s
            print(json.dumps([now_s, len(y)]), file=notes, flush=True)
            if now_s - began_s > given.seconds:
                break
            if worker.rank == 0 and now_s - began_s >= COPY_EVERY_S * len(copies):
                copies.append((now_s, {name: weights.clone() for name, weights in model.state_dict().items()}))
            if worker.rank == given.kill and now_s - began_s > given.kill_after:
                os.kill(os.getpid(), signal.SIGKILL)
    if copies:
        (given.notes / "losses.json").write_text(json.dumps([evaluated(*copy, held_out.tensors) for copy in copies]))


def evaluated(at_s: float, weights: dict[str, Tensor], held_out: tuple[Tensor, ...]) -> tuple[float, float, float]:
    """Return the time of a copy, its mean loss on digits that are never trained on, and the share that it gets right."""
    model = network(0)
    model.load_state_dict(weights)
    x, y = held_out
    with torch.no_grad():
        scores = model(x)
    return at_s, float(functional.cross_entropy(scores, y)), float((scores.argmax(dim=1) == y).float().mean())


if __name__ == "__main__":
    main()

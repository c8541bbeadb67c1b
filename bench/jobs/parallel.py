"""A model of 7 to 17 million parameters, cut into the parts of an island or whole, which watches its memory and steps.

Each process writes ``OUT/NUMBER.json``: the bytes of its part's weights, gradients and optimizer state; how far its
resident memory went beyond that of the imports; and the median time of its steps, after the first ones.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
import torch._dynamo  # an optimizer imports it: not the model's memory
import torch.distributed.pipelining
from torch import nn
from torch.nn.functional import cross_entropy

import taut
import taut.codecs.kernels.cpu.kernels
import taut.parallel
import taut.worker.session
from taut.worker.model.sharded import local

WARM_UP = 2  # steps that are not counted
LETTERS, LENGTH, WIDTH = 1000, 64, 256


class Embedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters, self.positions = nn.Embedding(LETTERS, WIDTH), nn.Embedding(LENGTH, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.letters(tokens) + self.positions(torch.arange(tokens.shape[1]))


def block() -> nn.Module:
    return nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)


def transformer() -> nn.Module:
    layers = [Embedding(), *(block() for _ in range(8)), nn.Linear(WIDTH, LETTERS)]
    return taut.parallel.pipeline(nn.Sequential(*layers), microbatches=4)


def mlp() -> nn.Module:
    def pair(width: int, hidden: int, out: int) -> list[nn.Module]:
        first = taut.parallel.columns(nn.Linear(width, hidden), gather=False)
        return [first, nn.ReLU(), taut.parallel.rows(nn.Linear(hidden, out), split=True)]

    return nn.Sequential(*pair(1024, 4096, 1024), nn.ReLU(), *pair(1024, 4096, 1024), nn.ReLU(), nn.Linear(1024, 10))


def alexnet() -> nn.Module:
    return nn.Sequential(
        taut.parallel.filters(nn.Conv2d(3, 64, 5, padding=2)),
        nn.ReLU(),
        nn.MaxPool2d(2),
        taut.parallel.filters(nn.Conv2d(64, 192, 3, padding=1)),
        nn.ReLU(),
        nn.MaxPool2d(2),
        taut.parallel.filters(nn.Conv2d(192, 256, 3, padding=1)),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        taut.parallel.columns(nn.Linear(256 * 16, 2048), gather=False),
        nn.ReLU(),
        taut.parallel.rows(nn.Linear(2048, 10), split=True),
    )


def paths() -> nn.Module:
    def path(kernel: int) -> nn.Module:
        first = nn.Conv2d(3, 32, kernel, padding=kernel // 2)
        second = nn.Conv2d(32, 64, kernel, padding=kernel // 2)
        return nn.Sequential(
            first, nn.ReLU(), nn.MaxPool2d(2), second, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4096, 1024)
        )

    return nn.Sequential(taut.parallel.paths([path(3), path(5)]), nn.ReLU(), nn.Linear(2048, 10))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "transformer": (transformer, (LENGTH,), 8),
    "mlp": (mlp, (1024,), 64),
    "alexnet": (alexnet, (3, 32, 32), 32),
    "paths": (paths, (3, 32, 32), 32),
}


def nbytes(tensors: Iterable[torch.Tensor | None]) -> int:
    return sum(local(each).nbytes for each in tensors if each is not None)


def letters_loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return cross_entropy(output.flatten(0, 1), target.flatten())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--steps", type=int, default=12, help="of each island, about")
    parser.add_argument("--islands", type=int, default=1)
    args = parser.parse_args()
    build, shape, batch = MODELS[args.model]
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    island = taut.parallel.island()
    torch.manual_seed(0)
    model = build()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)
    gradients: list[int] = []
    optimizer.register_step_pre_hook(lambda *_: gradients.append(nbytes(each.grad for each in parameters)))
    count = batch * args.steps * args.islands
    pipelined = isinstance(model, taut.parallel.Pipeline)
    x = torch.randint(LETTERS, (count, *shape)) if pipelined else torch.randn(count, *shape)
    y = x if pipelined else torch.randint(10, (count,))
    times_s, cpu_s = [time.perf_counter()], [time.process_time()]
    with taut.join(model, optimizer) as worker:
        for inputs, targets in worker.batches((x, y), batch_size=batch, epochs=1, drop_last=True):
            if pipelined:
                optimizer.zero_grad()
                loss = model.loss(inputs, targets, letters_loss)
                optimizer.step()
                worker.exchange(loss)
            else:
                worker.step(cross_entropy(model(inputs), targets))
            times_s.append(time.perf_counter())
            cpu_s.append(time.process_time())
    between = [b - a for a, b in zip(times_s[WARM_UP:], times_s[WARM_UP + 1 :], strict=False)]
    state = [each for kept in optimizer.state.values() for each in kept.values() if isinstance(each, torch.Tensor)]
    record = {
        "part": island.rank,
        "weights": nbytes(parameters),
        "gradients": max(gradients),
        "optimizer": nbytes(state),
        "grown": 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib),
        "step_s": statistics.median(between),
        "cpu_s": (cpu_s[-1] - cpu_s[WARM_UP]) / len(between),
    }
    (args.out / f"{island.rank}-{os.getpid()}.json").write_text(json.dumps(record))


if __name__ == "__main__":
    main()

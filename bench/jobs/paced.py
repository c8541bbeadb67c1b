"""A perceptron whose computing takes as long as it is told, as if on a device of its own: layers sleep, forward a third
of the step and backward two thirds, so that gradients come one after the other as they do in real training. In virtual
time (``--step 0``) it does not sleep. It records when each step ended."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import taut

LAYERS = 4


class Pace(torch.autograd.Function):
    """Passes on what it is given, after a while."""

    @staticmethod
    def forward(context: Any, x: Tensor, seconds: float) -> Tensor:
        context.seconds = seconds
        time.sleep(seconds / 3)
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        time.sleep(2 * context.seconds / 3)
        return gradients[0], None


class Paced(nn.Module):
    def __init__(self, width: int, step_s: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(LAYERS))
        self.step_s = step_s

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if self.step_s:
                x = Pace.apply(x, self.step_s / LAYERS)
            x = functional.relu(layer(x))
        return x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--step", type=float, default=0.0, help="seconds")
    parser.add_argument("--steps", type=int, default=40, help="of all workers together, divided by four")
    args = parser.parse_args()
    torch.set_num_threads(1)
    made = torch.Generator().manual_seed(0)
    x = torch.randn(4 * args.steps * 8, args.width, generator=made)
    model = Paced(args.width, args.step)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    ends: list[float] = []
    with taut.join(model, optimizer) as worker:
        for (inputs,) in worker.batches((x,), batch_size=8, epochs=1):
            inputs.requires_grad_()  # else the first layer's pause would have no backward
            worker.step(functional.mse_loss(model(inputs), inputs.detach().roll(1, dims=1)))
            ends.append(time.monotonic())
        rank, spent = worker.rank, dict(worker.watch.seconds)
    if args.out is not None:
        part = args.out / f"{rank}.part"
        part.write_text(json.dumps({"ends": ends, "seconds": spent}))
        part.replace(args.out / f"{rank}.json")


if __name__ == "__main__":
    main()

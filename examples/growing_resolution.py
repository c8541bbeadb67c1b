"""Train on small images first, then on full size with a deeper model, which keeps what the smaller one has learnt.

    python examples/growing_resolution.py                                          # one worker
    taut run --workers 3 --strategy sync examples/growing_resolution.py            # three, which grow together
    python examples/growing_resolution.py --stages 32:6                            # full size from the start

The images are generated: flowers with 3 to 6 petals, somewhere in the picture. bench/growing.py measures time and
accuracy of both ways.
"""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional

import taut

SIDE, CLASSES = 32, 4


def flowers(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images of flowers, and how many petals each has beyond 3."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (count,), generator=generator)
    place, turn, size, noise = (
        torch.rand(count, *shape, generator=generator) for shape in ((2, 1, 1), (1, 1), (1, 1), (SIDE, SIDE))
    )
    rows, columns = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    dy, dx = rows - 0.2 * (place[:, 0] - 0.5), columns - 0.2 * (place[:, 1] - 0.5)
    angle, radius = torch.atan2(dy, dx), (dx.square() + dy.square()).sqrt()
    edge = (0.45 + 0.2 * size) * (1 + 0.4 * torch.cos((y + 3)[:, None, None] * angle + 6.3 * turn))
    return (torch.sigmoid(12 * (edge - radius)) + 0.3 * (noise - 0.5)).unsqueeze(1), y


class Net(nn.Module):
    """A network for images of 16 times 16."""

    def __init__(self) -> None:
        super().__init__()
        self.entry = nn.Conv2d(1, 16, 3, padding=1)
        self.body = nn.Sequential(
            nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1),
            nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1),
            nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(32 * 16, CLASSES),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.entry(x))


class FullNet(Net):
    """The network for images of 32 times 32: an entry for them, and convolutions over the fine details, which begin at
    nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.entry = nn.Conv2d(1, 16, 6, stride=2, padding=2)
        last = nn.Conv2d(16, 16, 3, stride=2, padding=1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.details = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), last
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.entry(x) + self.details(x))


def carry(old: Net, new: FullNet) -> list[str]:
    """Copy the body, and make the entry see in 2 times 2 pixels what the old one saw in their mean: the new model
    computes what the old one did."""
    with torch.no_grad():
        wide = old.entry.weight.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        new.entry.weight.copy_(wide / 4)
        new.entry.bias.copy_(old.entry.bias)
    return ["entry.weight", "entry.bias", *taut.by_name(old, new)]


def model_for(size: int) -> Net:
    return FullNet() if size == SIDE else Net()


def train(schedule: taut.data.Resolutions, samples: int = 2048, seed: int = 0) -> tuple[float, float, taut.TorchWorker]:
    """Train by the schedule; return the share of test images that come out right, the seconds of CPU, and the
    worker."""
    (x, y), (test_x, test_y) = flowers(samples, seed), flowers(1024, seed + 1000)
    torch.manual_seed(seed)
    model, began = model_for(schedule[0].size), time.process_time()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with taut.join(model, optimizer) as worker:
        for stage in schedule:
            if not stage.first:
                model = model_for(stage.size)
                worker.grow(model, torch.optim.Adam(model.parameters(), lr=2e-3), carry)
            for inputs, targets in worker.batches((stage.resize(x), y), batch_size=32, epochs=stage.epochs):
                worker.step(functional.cross_entropy(model(inputs), targets))
        trained_s = time.process_time() - began
    with torch.no_grad():
        right = (model(test_x).argmax(1) == test_y).float().mean().item()
    return right, trained_s, worker


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser()
    parser.add_argument("--stages", default="16:4,32:2", help="size:epochs, one after the other")
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    stages = [tuple(map(int, stage.split(":"))) for stage in options.stages.split(",")]
    right, trained_s, worker = train(taut.data.Resolutions(stages), options.samples, options.seed)
    worker.print(f"{100 * right:.1f}% of the test images right after {worker.steps} steps, {trained_s:.1f} s of CPU")

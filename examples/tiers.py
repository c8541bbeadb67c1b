"""Train a model over devices, an edge and the cloud, and see which of them answers.

    python examples/tiers.py                                     # one worker
    taut run --workers 3 --strategy sync examples/tiers.py       # three

Four cameras see one corner each of scikit-learn's digits. A device that is sure answers by itself; else it sends features
of one bit each to the edge, which fuses those of all devices, and passes on to the cloud what it is not sure of.
Needs scikit-learn (pip install 'taut[demo]').
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn

import taut
from taut.tiers import Signs, Tiers, evaluate, joint_loss

CORNERS = [(0, 0), (0, 2), (2, 0), (2, 2)]  # of 8 x 8 pixels, 6 x 6 each
CHANNELS, CLASSES = 4, 10


def views_of(images: torch.Tensor) -> list[torch.Tensor]:
    """Return what each device sees."""
    return [images[:, :, row : row + 6, column : column + 6].contiguous() for row, column in CORNERS]


def build(fusion: str = "concat", gone: float = 0.1) -> Tiers:
    """Return the model, untrained."""

    def device() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, CHANNELS, 3, padding=1, stride=2), nn.BatchNorm2d(CHANNELS), Signs(),
        )  # fmt: skip

    def leave(features: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(features, CLASSES))

    fused = CHANNELS * (len(CORNERS) if fusion == "concat" else 1)
    return Tiers(
        [device() for _ in CORNERS],
        [leave(CHANNELS * 9) for _ in CORNERS],
        edge=nn.Sequential(nn.Conv2d(fused, 16, 3, padding=1), nn.BatchNorm2d(16), Signs()),
        edge_exit=leave(16 * 9),
        cloud=nn.Sequential(nn.Conv2d(16, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
        cloud_exit=leave(64 * 9),
        fusion=fusion,
        gone=gone,
    )


def data(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return training images and labels, and those of the test, split by the seed."""
    pixels, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16, torch.tensor(labels)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
    return x[order[360:]], y[order[360:]], x[order[:360]], y[order[:360]]


def train(epochs: int, fusion: str = "concat", gone: float = 0.1, seed: int = 0) -> tuple[Tiers, taut.TorchWorker]:
    """Return the trained model, and the worker."""
    x, y, _, _ = data(seed)
    torch.manual_seed(seed)
    model = build(fusion, gone)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with taut.join(model, optimizer) as worker:
        for images, targets in worker.batches((x, y), batch_size=32, epochs=epochs):
            worker.step(joint_loss(model(views_of(images)), targets))
    return model, worker


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--fusion", choices=["max", "average", "concat"], default="concat")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    model, worker = train(options.epochs, options.fusion, seed=options.seed)
    _, _, test_x, test_y = data(options.seed)
    for sure in (0.0, 0.2, 0.5):
        found = evaluate(model, views_of(test_x), test_y, device=sure, edge=sure)
        shares = ", ".join(f"{name} {100 * share:.0f}%" for name, share in found.shares.items())
        worker.print(
            f"sure up to entropy {sure}: {100 * found.accuracy:.1f}% right; {shares}; "
            f"{found.nbytes:.0f} bytes a sample, raw {found.raw:.0f}"
        )

"""A LightningModule on two spirals, trained by any number of workers: Trainer(strategy=TautStrategy()).

    python examples/lightning_mlp.py                                    alone
    taut run --workers 4 examples/lightning_mlp.py                      four processes, each at its own pace
    taut run --workers 4 --strategy sync examples/lightning_mlp.py      in lock-step, as under DDP

Needs Lightning (pip install 'taut[lightning]'). The plain script beside this one: docs/frameworks.md.
"""

import math

import lightning
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from taut.lightning import TautStrategy


def spirals(samples, seed):
    """Two spirals, one in the other."""
    generator = torch.Generator().manual_seed(seed)
    turn = torch.empty(samples).uniform_(0.5 * math.pi, 3 * math.pi, generator=generator)
    label = torch.randint(2, (samples,), generator=generator)
    angle = turn + math.pi * label
    x = torch.stack([angle.cos(), angle.sin()], 1) * turn[:, None] / 4
    return TensorDataset(x + 0.08 * torch.randn(x.shape, generator=generator), label)


class Spirals(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))

    def training_step(self, batch, index):
        x, y = batch
        return functional.cross_entropy(self.layers(x), y)

    def test_step(self, batch, index):
        x, y = batch
        self.log("accuracy", (self.layers(x).argmax(1) == y).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=3e-3)


torch.manual_seed(0)
model = Spirals()
trainer = lightning.Trainer(
    strategy=TautStrategy(), max_epochs=10, logger=False, enable_checkpointing=False, enable_model_summary=False
)
trainer.fit(model, DataLoader(spirals(4000, seed=1), batch_size=32, shuffle=True))
trainer.test(model, DataLoader(spirals(1000, seed=2), batch_size=1000))

"""A LightningModule that learns a linear map, its data, and Trainers without files."""

from typing import Any

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

X = torch.randn(160, 4, generator=torch.Generator().manual_seed(0))
Y = X @ torch.tensor([[1.0], [2.0], [-1.0], [0.5]]) + 3.0
QUIET: dict[str, Any] = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_model_summary": False,
    "enable_progress_bar": False,
    "accelerator": "cpu",
}


class Linear(lightning.LightningModule):
    """``seen``: the samples of each batch that was trained on."""

    def __init__(self, lr: float = 0.05) -> None:
        super().__init__()
        self.layer, self.lr, self.seen = torch.nn.Linear(4, 1), lr, []
        torch.nn.init.zeros_(self.layer.weight)
        torch.nn.init.zeros_(self.layer.bias)

    def training_step(self, batch: Any, index: int) -> Any:
        x, y = batch
        self.seen.append(len(x))
        return (self.layer(x) - y).square().mean()

    def validation_step(self, batch: Any, index: int) -> None:
        x, y = batch
        self.log("off", (self.layer(x) - y).square().mean())

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.5)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)}


def loader(batch_size: int = 8, **options: Any) -> DataLoader:
    return DataLoader(TensorDataset(X, Y), batch_size=batch_size, shuffle=True, **options)

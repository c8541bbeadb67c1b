"""What can go wrong in a worker's own step, before anything of it is sent: told so that the user knows what to try."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from taut.errors import Misuse, NonFiniteLoss

if TYPE_CHECKING:
    import torch
    from torch import nn

    from taut.worker.torch_worker import TorchWorker


def check_loss(loss: float, worker: TorchWorker) -> None:
    """``NonFiniteLoss`` for one that is NaN or infinite."""
    if not math.isfinite(loss):
        raise NonFiniteLoss(
            f"loss is {loss} at step {worker.steps} of worker {worker.rank}{_culprit(worker.model)}: "
            "nothing of this step was sent. "
            "Try a smaller learning rate, gradient clipping (worker.step(loss, clip_norm=1.0)), or look at the data"
        )


def _culprit(model: nn.Module) -> str:
    """Which parameter is to blame, if one is."""
    import torch

    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter.detach()).all()):
            return f" (parameter {name!r} has weights that are NaN or infinite: its last gradient was)"
    return ""


def take_step(optimizer: torch.optim.Optimizer) -> None:
    """The optimizer's step; ``Misuse`` for one that needs a closure."""
    try:
        optimizer.step()
    except TypeError as error:
        if "closure" not in str(error):
            raise
        raise Misuse(
            f"{type(optimizer).__name__} in worker.step",
            "an optimizer whose step needs no closure",
            "call optimizer.step(closure) yourself, then worker.exchange(loss)",
        ) from None

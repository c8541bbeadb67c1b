"""What a task is: a model, an optimizer whose rate was chosen once for synchronous training, and a score."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
Batch = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Task:
    """``model(seed)``; ``optimizer(parameters)``; ``batch(generator)``: one worker's next batch; ``loss(model, batch)``;
    ``score(model)``: on held-out data, the lower the better. ``steps`` of each worker. ``rate(step, steps)``: the share
    of the optimizer's rate. ``local``: the model looks at its own batch as a whole (batch norm), so that synchronous
    training must not put the workers' batches together. ``clip``: the gradient's norm, at most."""

    model: Callable[[int], nn.Module]
    optimizer: Callable[[Any], torch.optim.Optimizer]
    batch: Callable[[torch.Generator], Batch]
    loss: Callable[[nn.Module, Batch], torch.Tensor]
    score: Callable[[nn.Module], float]
    steps: int
    rate: Callable[[int, int], float] = lambda step, steps: 1.0
    local: bool = False
    clip: float = math.inf


def warm_up_and_cosine(step: int, steps: int) -> float:
    """Return the share of the rate: a rise over a tenth of the run, then half a cosine to a tenth.

    >>> [round(warm_up_and_cosine(step, 100), 2) for step in (0, 9, 55, 100)]
    [0.1, 1.0, 0.55, 0.1]
    """
    rise = max(1, steps // 10)
    if step < rise:
        return (step + 1) / rise
    return 0.1 + 0.45 * (1.0 + math.cos(math.pi * min(1.0, (step - rise) / max(1, steps - rise))))


def indices(count: int, size: int, generator: torch.Generator) -> torch.Tensor:
    """Return ``size`` random indices below ``count``."""
    return torch.randint(count, (size,), generator=generator)

"""Exits: what each tier would answer, how sure it is, and the loss with which all are trained together.

sure     eta(x) = -sum_c p_c log p_c / log C  <=  threshold        p = softmax of the exit, C classes
loss     sum_t w_t CE(exit_t, y)        over the tiers t; that of the devices is the mean of theirs
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn import functional

from taut.errors import Misuse

TIERS = ("device", "edge", "cloud")


class Exits(NamedTuple):
    """The logits of the exits: one tensor (samples, classes) per device, and one each of edge and cloud."""

    devices: Sequence[torch.Tensor]
    edge: torch.Tensor
    cloud: torch.Tensor


def entropy(logits: torch.Tensor) -> torch.Tensor:
    """Return the entropy of each sample's classes, from 0 (sure) to 1 (all are alike).

    >>> [round(value, 3) for value in entropy(torch.tensor([[0.0, 0.0], [9.0, -9.0]])).tolist()]
    [1.0, 0.0]
    """
    if logits.ndim != 2 or logits.shape[1] < 2:
        raise Misuse(f"an exit of shape {tuple(logits.shape)}", "(samples, classes), with at least 2 classes")
    logs = functional.log_softmax(logits, dim=1)
    return -(logs.exp() * logs).sum(1) / math.log(logits.shape[1])


def joint_loss(exits: Exits, targets: torch.Tensor, weights: Sequence[float] = (1.0, 1.0, 1.0)) -> torch.Tensor:
    """Return the weighted sum of the losses of all exits. ``weights``: of device, edge and cloud.

    >>> logits = torch.zeros(2, 4)
    >>> exits = Exits([logits, logits], logits, logits)
    >>> bool(joint_loss(exits, torch.tensor([0, 1])).isclose(torch.tensor(3 * math.log(4))))
    True
    """
    if len(weights) != len(TIERS) or min(weights) < 0 or not sum(weights):
        raise Misuse(f"weights {tuple(weights)}", "one of at least 0 for each of device, edge and cloud, not all 0")
    losses = torch.stack([functional.cross_entropy(each, targets) for each in exits.devices])
    upper = [functional.cross_entropy(each, targets) for each in (exits.edge, exits.cloud)]
    return weights[0] * losses.mean() + weights[1] * upper[0] + weights[2] * upper[1]

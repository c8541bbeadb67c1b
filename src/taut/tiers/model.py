"""A model over three tiers: a branch per device, all fused at the edge, and the rest in the cloud; an exit after each.

    f_d = device_d(view_d)         exit_d(f_d)              on device d
    g   = edge(fuse_d f_d)         edge_exit(g)             fuse: max, average, or concatenation along the channels
    h   = cloud(g)                 cloud_exit(h)

A device that is gone has no part in the fusion: it is left out of max and average, and is zeros in a concatenation.
Trained with ``gone`` > 0, each device is missing in that share of the samples: the model learns to do without any of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import nn

from taut.errors import Misuse
from taut.tiers.exits import Exits

Fusion = Literal["max", "average", "concat"]


class Tiers(nn.Module):
    """``devices`` and ``device_exits``: one of each per device, with features of the same shape.

    >>> def linear(inputs: int, outputs: int) -> nn.Module:
    ...     return nn.Linear(inputs, outputs)
    >>> model = Tiers([linear(3, 4), linear(3, 4)], [linear(4, 2), linear(4, 2)],
    ...               edge=linear(4, 4), edge_exit=linear(4, 2), cloud=linear(4, 4), cloud_exit=linear(4, 2))
    >>> exits = model([torch.ones(5, 3), torch.ones(5, 3)])
    >>> len(exits.devices), exits.cloud.shape
    (2, torch.Size([5, 2]))
    """

    def __init__(
        self,
        devices: Sequence[nn.Module],
        device_exits: Sequence[nn.Module],
        *,
        edge: nn.Module,
        edge_exit: nn.Module,
        cloud: nn.Module,
        cloud_exit: nn.Module,
        fusion: Fusion = "max",
        gone: float = 0.0,
    ) -> None:
        super().__init__()
        if not devices or len(devices) != len(device_exits):
            raise Misuse(f"{len(devices)} devices and {len(device_exits)} device exits", "one exit for each device")
        if fusion not in get_args(Fusion):
            raise Misuse(f"fusion={fusion!r}", " or ".join(map(repr, get_args(Fusion))))
        if not 0.0 <= gone < 1.0:
            raise Misuse(f"gone={gone}", "the share of samples in which a device is missing, from 0 to less than 1")
        self.devices, self.device_exits = nn.ModuleList(devices), nn.ModuleList(device_exits)
        self.edge, self.edge_exit, self.cloud, self.cloud_exit = edge, edge_exit, cloud, cloud_exit
        self.fusion, self.gone = fusion, gone

    def forward(self, views: Sequence[torch.Tensor]) -> Exits:
        """Return what all exits say to these samples; ``views``: one tensor of all samples for each device."""
        if len(views) != len(self.devices):
            raise Misuse(f"{len(views)} views", f"{len(self.devices)}, one for each device")
        features = [device(view) for device, view in zip(self.devices, views, strict=True)]
        local = [leave(each) for leave, each in zip(self.device_exits, features, strict=True)]
        fused = self.edge(self.fuse(features, self._drawn(len(views[0]), features[0].device)))
        return Exits(local, self.edge_exit(fused), self.cloud_exit(self.cloud(fused)))

    def _drawn(self, samples: int, place: torch.device) -> torch.Tensor | None:
        """Draw which devices are there in a training step: at least one, for each sample."""
        if not (self.training and self.gone):
            return None
        count = len(self.devices)
        present = torch.rand(samples, count, device=place) >= self.gone
        spared = torch.randint(count, (samples, 1), device=place)
        return present.scatter(1, spared, True)

    def fuse(self, features: Sequence[torch.Tensor], present: torch.Tensor | None = None) -> torch.Tensor:
        """Return the devices' features as one tensor. ``present``: (samples, devices), whether each is there."""
        stacked = torch.stack(list(features), dim=1)  # samples, devices, ...
        if present is None:
            present = stacked.new_ones(stacked.shape[:2], dtype=torch.bool)
        there = present.reshape(*present.shape, *[1] * (stacked.ndim - 2))
        if self.fusion == "max":
            largest = stacked.masked_fill(~there, -torch.inf).amax(1)
            return largest.masked_fill(~present.any(1).reshape(-1, *[1] * (largest.ndim - 1)), 0.0)
        kept = stacked * there
        if self.fusion == "average":
            return kept.sum(1) / there.sum(1).clamp(min=1)
        return kept.flatten(1, 2)

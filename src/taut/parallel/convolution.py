"""Convolutions by their filters: each process computes some output channels of the whole input.

torch has no parallel style for convolutions. The parameters are DTensors all the same, so that optimizers, FSDP's tools
and ``gather`` see them as they see those of a linear layer.
Paper: Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks".
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from taut.errors import Misuse
from taut.parallel.island import Island, check_device, island, join_parts, note_cut, spread

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class ParallelConv(nn.Module):
    """A convolution of which this process has some filters; it returns the output of all."""

    def __init__(self, conv: Any, group: Island) -> None:
        super().__init__()
        check_device(conv.named_parameters(), group.device_type)
        note_cut(conv)
        self.group, self.lengths = group, _lengths(conv.out_channels, group)
        self._forward = conv._conv_forward  # knows stride, padding and dilation; it is given the weights
        self.weight = _shard(conv.weight, group)
        self.bias = None if conv.bias is None else _shard(conv.bias, group)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else _local(self.bias)
        part = self._forward(spread(x, self.group), _local(self.weight), bias)
        return join_parts(part, x.ndim - self.weight.ndim + 1, self.lengths, self.group)


def filters(conv: nn.Module, *, group: Island | None = None) -> nn.Module:
    """Cut a convolution by its filters: its input is whole everywhere, and so is its output."""
    group = group or island()
    if not isinstance(conv, CONVOLUTIONS) or conv.groups != 1:
        given = type(conv).__name__ + (f" with {conv.groups} groups" if isinstance(conv, CONVOLUTIONS) else "")
        raise Misuse(f"{given} to be cut by filters", "a Conv1d, Conv2d or Conv3d with one group", "paths() cuts groups")
    return conv if group.size == 1 else ParallelConv(conv, group)


def _lengths(count: int, group: Island) -> list[int]:
    return [len(Island(rank, group.size).share_of(count, "filters")) for rank in range(group.size)]


def _shard(value: nn.Parameter, group: Island) -> nn.Parameter:
    return nn.Parameter(distribute_tensor(value.detach(), group.mesh, [Shard(0)]), value.requires_grad)


def _local(value: torch.Tensor) -> torch.Tensor:
    return value.to_local() if isinstance(value, DTensor) else value

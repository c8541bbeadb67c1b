"""The island: the processes that hold one replica together, as a group of torch.distributed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from taut.config import island_environment
from taut.errors import Misuse


@dataclass(frozen=True)
class Island:
    """The processes of one replica. ``rank``: this process's number among them, from 0; ``size``: how many they are."""

    rank: int
    size: int
    device_type: str = "cpu"

    @cached_property
    def mesh(self) -> DeviceMesh:
        """Return the island as torch's parallel styles want it."""
        return DeviceMesh(self.device_type, list(range(self.size)))

    def share_of(self, count: int, what: str) -> range:
        """Return which of ``count`` things this process holds: as many as the others, the first ones one more.

        >>> Island(1, 2).share_of(5, "filters")
        range(3, 5)
        """
        if count < self.size:
            raise Misuse(
                f"{count} {what} in an island of {self.size} processes",
                f"at least one of the {what} for each process",
                f"--island {count}, or more {what}",
            )
        each = -(-count // self.size)
        if each * (self.size - 1) >= count:  # torch.chunk would leave the last one without any
            raise Misuse(
                f"{count} {what} in an island of {self.size} processes",
                f"parts of {each}, the last one not empty",
                f"a number of {what} that {self.size} divides",
            )
        return range(min(count, self.rank * each), min(count, (self.rank + 1) * each))


def island() -> Island:
    """Return this process's island: that of ``taut run --island``, torch.distributed's default group, or this process
    alone. Call it before the model is cut: the processes meet here."""
    if not (dist.is_available() and dist.is_initialized()):
        given = island_environment()
        if given is None:
            return Island(0, 1)
        dist.init_process_group("gloo", init_method=f"file://{given.store}", rank=given.part, world_size=given.size)
    kind = "cuda" if dist.get_backend() == "nccl" else "cpu"
    return Island(dist.get_rank(), dist.get_world_size(), kind)


def check_device(parameters: Iterable[tuple[str, torch.Tensor]], expected: str) -> None:
    """Refuse parameters on a device of another type than the one in whose memory the island exchanges."""
    for name, parameter in parameters:
        if parameter.device.type != expected:
            raise Misuse(
                f"{name!r} on {parameter.device} in an island",
                "a model on the processor: the processes of an island exchange by gloo, in host memory",
                "keep the model there (taut run --devices cpu); or leave --island out, for a worker on each GPU",
            )


def check_untied(parts: Sequence[nn.Module], what: str) -> None:
    """Refuse a weight that two of these parts share: each process would train one of its own."""
    seen: dict[int, int] = {}
    for number, part in enumerate(parts):
        for name, parameter in part.named_parameters():
            if seen.setdefault(id(parameter), number) != number:
                given = (
                    f"{name.partition('.')[2]!r}, of shape {tuple(parameter.shape)}, in two {what} of different processes"
                )
                raise Misuse(given, "weights that are tied within one process", "untie them, or cut elsewhere")


_whole: WeakValueDictionary[int, torch.Tensor] = WeakValueDictionary()  # parameters of layers as they were before a cut


def note_cut(layer: nn.Module) -> None:
    """Note that ``layer`` is about to be cut: its parameters are replaced by parts."""
    _whole.update((id(each), each) for each in layer.parameters())


def check_cut(model: nn.Module) -> None:
    """Refuse a model that still has a whole weight of a layer that was cut: the two were tied, and are no longer."""
    for name, parameter in model.named_parameters():
        if _whole.get(id(parameter)) is parameter:
            raise Misuse(
                f"{name!r}, of shape {tuple(parameter.shape)}, tied to a layer that was then cut",
                "layers of which no other one has the weights",
                "untie them before you cut (a copy of the weight), or leave that layer whole",
            )


class _Spread(torch.autograd.Function):
    """Pass on what all processes have alike; its gradient is the sum of theirs, as each computed with its part only."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        return total


class _Join(torch.autograd.Function):
    """Concatenate the parts of all processes along ``dim``, of ``lengths`` each; a part's gradient is its own slice."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, dim: int, lengths: list[int], rank: int) -> torch.Tensor:
        ctx.span = (dim, sum(lengths[:rank]), lengths[rank])
        parts = []
        for owner, length in enumerate(lengths):
            shape = list(part.shape)
            shape[dim] = length
            one = part.contiguous() if owner == rank else part.new_empty(shape)
            dist.broadcast(one, owner)
            parts.append(one)
        return torch.cat(parts, dim)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return gradient.narrow(*ctx.span), None, None, None


class _Sum(torch.autograd.Function):
    """Add up the parts of all processes; the gradient of each is the sum's."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor) -> torch.Tensor:
        total = part.contiguous().clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def spread(x: torch.Tensor, group: Island) -> torch.Tensor:
    """Give ``x``, which all processes have alike, to this process's part of a layer."""
    return x if group.size == 1 else _Spread.apply(x)  # type: ignore[no-untyped-call]


def join_parts(part: torch.Tensor, dim: int, lengths: list[int], group: Island) -> torch.Tensor:
    """Return all processes' parts as one tensor, the same at all of them."""
    return part if group.size == 1 else _Join.apply(part, dim, lengths, group.rank)  # type: ignore[no-untyped-call]


def sum_parts(part: torch.Tensor, group: Island) -> torch.Tensor:
    """Return the sum of all processes' parts, the same at all of them."""
    return part if group.size == 1 else _Sum.apply(part)  # type: ignore[no-untyped-call]

"""Paths: modules that all see the same input, as Inception's branches and AlexNet's two halves; each at one process."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn

from taut.errors import Misuse
from taut.parallel.island import Island, check_device, check_untied, island, join_parts, spread, sum_parts

COMBINE = ("concat", "sum")


class Paths(nn.Module):
    """The paths of this process, under their numbers; it returns the outputs of all, combined."""

    def __init__(self, modules: Iterable[nn.Module], combine: str, dim: int, group: Island) -> None:
        super().__init__()
        every = list(modules)
        self.group, self.combine, self.dim = group, combine, dim
        held = [Island(rank, group.size).share_of(len(every), "paths") for rank in range(group.size)]
        if group.size > 1:
            check_device(nn.ModuleList(every).named_parameters(), group.device_type)
        check_untied([nn.ModuleList(every[number] for number in numbers) for numbers in held], "paths")
        for number in group.share_of(len(every), "paths"):
            self.add_module(str(number), every[number])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        given = spread(x, self.group)
        outputs = [path(given) for path in self._modules.values() if path is not None]  # one may be there twice
        if self.combine == "sum":
            return sum_parts(torch.stack(outputs).sum(0), self.group)
        part = torch.cat(outputs, self.dim)
        return join_parts(part, self.dim % part.ndim, self._lengths(part), self.group)

    def _lengths(self, part: torch.Tensor) -> list[int]:
        """Return how long the part of each process is along ``dim``."""
        if self.group.size == 1:
            return [part.shape[self.dim]]
        mine = torch.zeros(self.group.size, dtype=torch.int64, device=part.device)
        mine[self.group.rank] = part.shape[self.dim]
        dist.all_reduce(mine)
        return mine.tolist()


def paths(modules: Iterable[nn.Module], *, combine: str = "concat", dim: int = 1, group: Island | None = None) -> Paths:
    """Give each process some of ``modules``. Their outputs are concatenated along ``dim``, or summed.

    >>> both = paths([nn.Linear(3, 2), nn.Linear(3, 4)])
    >>> both(torch.zeros(5, 3)).shape
    torch.Size([5, 6])
    """
    if combine not in COMBINE:
        raise Misuse(f"paths combined by {combine!r}", f"one of {', '.join(COMBINE)}")
    return Paths(modules, combine, dim, group or island())

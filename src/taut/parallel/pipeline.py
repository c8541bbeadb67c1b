"""Pipelines: a sequence of layers in stages, a process each, with micro-batches under way at the same time.

A thin layer over torch.distributed.pipelining. It cuts a ``Sequential`` where the stages have about as many parameters
each, keeps the layers' names, and hands the loss to every process.
Papers: Huang et al. 2019, "GPipe"; Narayanan et al. 2019, "PipeDream" (the 1F1B schedule).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from taut.errors import Misuse
from taut.parallel.island import Island, check_device, check_untied, island

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
MOST_DIMS = 8  # of what a stage gives
TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.bool)
SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class Pipeline(nn.Module):
    """The stage of this process: its layers, under the names that they have in the whole model."""

    def __init__(self, layers: Sequence[tuple[str, nn.Module]], microbatches: int, schedule: str, group: Island) -> None:
        super().__init__()
        self.group, self.microbatches, self._schedule = group, microbatches, SCHEDULES[schedule]
        self._ready: tuple[Any, Any] | None = None
        self._stage = [nn.Sequential(*(layer for _, layer in layers))]  # in a list: it is not a second child
        for name, layer in layers:
            self.add_module(name, layer)

    @property
    def first(self) -> bool:
        return self.group.rank == 0

    @property
    def last(self) -> bool:
        return self.group.rank == self.group.size - 1

    def loss(self, x: torch.Tensor, target: torch.Tensor, loss: Loss) -> torch.Tensor:
        """Run a batch forward and backward, and return the mean ``loss`` of its micro-batches at every process. The
        gradients are in the parameters: do not call ``backward`` again. All processes give the same batch."""
        if len(x) % self.microbatches:
            raise Misuse(
                f"a batch of {len(x)} in {self.microbatches} micro-batches",
                "a batch that the number of micro-batches divides",
                "another batch size, or batches(..., drop_last=True)",
            )
        if self.group.size == 1:
            return self._alone(x, target, loss)
        schedule = self._prepared(x, loss)
        losses: list[torch.Tensor] = []
        given: dict[str, Any] = {"target": target, "losses": losses} if self.last else {}
        schedule.step(*((x,) if self.first else ()), **given)
        value = torch.stack(losses).detach().mean() if self.last else torch.zeros((), device=x.device)
        dist.broadcast(value, self.group.size - 1)
        return value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the output of the last stage at every process, without gradients: for evaluation."""
        if self.group.size == 1:
            return self._stage[0](x)  # type: ignore[no-any-return]
        with torch.no_grad():
            return _relay(self._stage[0], x, self.group)

    def _alone(self, x: torch.Tensor, target: torch.Tensor, loss: Loss) -> torch.Tensor:
        total = torch.zeros((), device=x.device)
        for one, wanted in zip(x.chunk(self.microbatches), target.chunk(self.microbatches), strict=True):
            value = loss(self._stage[0](one), wanted) / self.microbatches
            value.backward()  # type: ignore[no-untyped-call]
            total += value.detach()
        return total

    def _prepared(self, x: torch.Tensor, loss: Loss) -> Any:
        """Return the schedule for batches like ``x``. A new one costs messages: stages ask for shapes."""
        key = (x.shape, x.dtype, x.device, loss)
        if self._ready is None or self._ready[0] != key:
            stage = PipelineStage(self._stage[0], self.group.rank, self.group.size, x.device)
            self._ready = (key, self._schedule(stage, self.microbatches, loss_fn=loss))
        return self._ready[1]


def pipeline(
    model: nn.Module,
    stages: int | None = None,
    microbatches: int = 4,
    *,
    schedule: str = "1f1b",
    group: Island | None = None,
) -> Pipeline:
    """Cut a ``Sequential`` into as many stages as the island has processes, and return this process's own.

    >>> model = pipeline(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1)), microbatches=2)
    >>> float(model.loss(torch.zeros(4, 2), torch.zeros(4, 1), nn.functional.mse_loss)) >= 0.0
    True
    """
    group = group or island()
    if not isinstance(model, nn.Sequential):
        raise Misuse(
            f"a pipeline of {type(model).__name__}", "a torch.nn.Sequential", "put its layers into one, in order"
        )
    if stages not in (None, group.size):
        expected = f"{group.size}, one for each process of the island"
        raise Misuse(f"{stages} stages", expected, f"taut run --island {stages}")
    if schedule not in SCHEDULES:
        raise Misuse(f"schedule {schedule!r}", f"one of {', '.join(SCHEDULES)}")
    if microbatches < group.size:
        raise Misuse(f"{microbatches} micro-batches", f"at least {group.size}, the number of stages")
    named = _layers(model)
    if len(named) < group.size:
        raise Misuse(f"{len(named)} layers in {group.size} stages", "at least one layer for each stage")
    if group.size > 1:
        check_device(model.named_parameters(), group.device_type)
    sizes = [sum(each.numel() for each in layer.parameters()) for _, layer in named]
    cuts = balanced_cuts(sizes, group.size)
    stages_of = [[layer for _, layer in named[cuts[part] : cuts[part + 1]]] for part in range(group.size)]
    check_untied([nn.ModuleList(each) for each in stages_of], "stages")
    return Pipeline(named[cuts[group.rank] : cuts[group.rank + 1]], microbatches, schedule, group)


def _layers(model: nn.Sequential) -> list[tuple[str, nn.Module]]:
    """Return all layers with their names; ``named_children`` leaves out one that comes again.

    >>> act = nn.ReLU()
    >>> [name for name, _ in _layers(nn.Sequential(act, nn.Linear(1, 1), act))]
    ['0', '1', '2']
    """
    return [(name, layer) for name, layer in model._modules.items() if layer is not None]


def balanced_cuts(sizes: Sequence[int], parts: int) -> list[int]:
    """Return where to cut a sequence so that the largest part is as small as it can be; no part is empty.

    >>> balanced_cuts([5, 1, 1, 5], 2), balanced_cuts([1, 0, 9], 3)
    ([0, 2, 4], [0, 1, 2, 3])
    """
    total = [0, *accumulate(sizes)]
    count = len(sizes)
    best: list[list[tuple[int, list[int]]]] = [[(total[end], [0, end]) for end in range(count + 1)]]
    for part in range(2, parts + 1):
        before, row = best[-1], [(0, [0])] * (count + 1)
        for end in range(part, count + 1):
            row[end] = min(
                (max(before[cut][0], total[end] - total[cut]), [*before[cut][1], end]) for cut in range(part - 1, end)
            )
        best.append(row)
    return best[-1][count][1]


def _relay(stage: nn.Module, x: torch.Tensor, group: Island) -> torch.Tensor:
    """Pass ``x`` through all stages, one after the other; return what the last one made, at every process."""
    for owner in range(group.size):
        y = stage(x) if owner == group.rank else None
        told = torch.zeros(2 + MOST_DIMS, dtype=torch.int64, device=x.device)
        if y is not None:
            told[: 2 + y.ndim] = torch.tensor([y.ndim, TYPES.index(y.dtype), *y.shape])
        dist.broadcast(told, owner)
        dims, kind, *sizes = told.tolist()
        room = torch.empty(sizes[:dims], dtype=TYPES[kind], device=x.device) if y is None else y.contiguous()
        dist.broadcast(room, owner)
        x = room
    return x

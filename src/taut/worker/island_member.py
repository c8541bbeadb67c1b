"""One process of an island as a worker: it exchanges the part of the model that it holds, with the same part of others.

A run of islands is one run for each part: process ``j`` of every island is in run ``j``, with a supervisor, a strategy and
a codec of its own. Three things are common to an island, and come from its process 0: the batches (``island_share.py``),
the parameters that all of its processes hold alike, and its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from taut.config import island_environment
from taut.core.callbacks import do_nothing
from taut.errors import Misuse

if TYPE_CHECKING:
    from torch import nn

    from taut.parallel.island import Island
    from taut.worker.session import WorkerSession

MESSAGE = 4  # numbers in a message of process 0


class IslandMember:
    """This process in its island. ``own``: the parameters that it exchanges; ``alike``: those that all have."""

    def __init__(self, group: Island, model: nn.Module, trained: list[nn.Parameter], validates: bool) -> None:
        from taut.parallel.whole import held_by

        self.group = group
        holders = held_by(model, group)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        alike = [each for each in trained if len(holders.get(names[id(each)], ())) > 1]
        self.own = trained if group.rank == 0 else [each for each in trained if not any(each is one for one in alike)]
        self.alike: list[torch.Tensor] = [*alike, *(b for b in model.buffers() if b.is_floating_point())]
        if validates:
            raise Misuse("validate= or recalibrate= in an island", "neither: a process has a part of the model only")
        if not self.own:
            raise Misuse(
                f"process {group.rank} of an island of {group.size}, whose parameters process 0 has, too",
                "a model that is cut, each process with a part of its own",
                "taut.parallel cuts layers; without a cut, leave --island out",
            )

    def share(self) -> None:
        """Give all processes process 0's values of what they hold alike, after an exchange has moved them."""
        import torch.distributed as dist

        with torch.no_grad():
            for tensor in self.alike:
                dist.broadcast(tensor.data, 0)

    def say(self, *numbers: int) -> None:
        """Tell the other processes these numbers; process 0 calls it."""
        import torch.distributed as dist

        dist.broadcast(torch.tensor(numbers, dtype=torch.int64), 0)

    def hear(self, session: WorkerSession) -> list[int]:
        """Return the numbers that process 0 tells. Meanwhile this worker takes part in the exchange, where others wait for
        it."""
        import torch.distributed as dist

        told = torch.zeros(MESSAGE, dtype=torch.int64)
        work = dist.broadcast(told, 0, async_op=True)
        assert work is not None
        session.exchange.wait(lambda _: work.is_completed(), again=do_nothing)
        work.wait()
        return told.tolist()


def island_member(model: nn.Module, trained: list[nn.Parameter], validates: bool) -> IslandMember | None:
    """Return this process in its island; None where a worker is one process. ``validates``: the script gives ``validate``
    or ``recalibrate``."""
    if island_environment() is None:
        return None
    from taut.parallel.island import island

    return IslandMember(island(), model, trained, validates)

"""One process of an island as a worker: it exchanges the part of the model that it holds, with the same part of others.

A run of islands is one run for each part: process ``j`` of every island is in run ``j``, with a supervisor, a strategy
and a codec of its own. Three things are common to an island, and come from its process 0: the batches
(``island_share.py``), the parameters that all of its processes hold alike, and its end.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import torch

from taut.config import island_environment
from taut.errors import Misuse
from taut.worker.model.sharded import local

if TYPE_CHECKING:
    from torch import nn

    from taut.parallel.island import Island
    from taut.worker.session import WorkerSession

MESSAGE = 4  # numbers in a message of process 0
OVER, BATCH, TURN = range(3)  # what a message says
POLL_S = 0.0005
LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")  # as gloo puts it
END_S = 10.0  # for the launcher to notice


class IslandMember:
    """This process in its island. ``own``: the parameters that it exchanges; ``alike``: those that all have."""

    def __init__(self, group: Island, model: nn.Module, trained: list[nn.Parameter], validates: bool) -> None:
        from taut.parallel.whole import held_by  # imports torch.distributed.tensor: only for islands

        self.group = group
        holders = held_by(model, group)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        alike = [each for each in trained if len(holders[names[id(each)]]) > 1]
        self.own = trained if group.rank == 0 else [each for each in trained if not any(each is one for one in alike)]
        self.alike = [local(each) for each in alike]
        if validates:
            raise Misuse("validate= or recalibrate= in an island", "neither: a process has a part of the model only")
        _check_fsdp(model, group)
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

    def await_end(self, error: BaseException) -> None:
        """Wait to be ended by the launcher, where ``error`` says that another process of the island is gone: an island is
        one worker, and that one was reported."""
        if isinstance(error, RuntimeError) and any(word in str(error) for word in LOST):
            time.sleep(END_S)

    def say(self, *numbers: int) -> None:
        """Tell the other processes these numbers; process 0 calls it."""
        import torch.distributed as dist

        dist.broadcast(torch.tensor(numbers, dtype=torch.int64), 0)

    def hear(self, session: WorkerSession) -> list[int]:
        """Return the numbers that process 0 tells about the next batch. Turns without data that it takes meanwhile are
        taken here, too: the parts of an island are at the same turn always."""
        import torch.distributed as dist

        while True:
            told = torch.zeros(MESSAGE, dtype=torch.int64)
            work = dist.broadcast(told, 0, async_op=True)
            assert work is not None
            while not work.is_completed():
                session.exchange.idle()
                time.sleep(POLL_S)
            work.wait()
            if int(told[0]) != TURN:
                return told.tolist()
            session.comm.run_turn(session.exchange.own_turn(0), session.watch)


def _check_fsdp(model: nn.Module, group: Island) -> None:
    """Refuse parameters that FSDP pads: it moves them to memory of its own."""
    module = sys.modules.get("torch.distributed.fsdp")
    if module is None or not any(isinstance(each, module.FSDPModule) for each in model.modules()):
        return
    for name, parameter in model.named_parameters():
        if parameter.shape and parameter.shape[0] % group.size:
            given = f"{name!r} of shape {tuple(parameter.shape)} under FSDP in an island of {group.size}"
            raise Misuse(given, f"a first dimension that {group.size} divides")


def island_member(model: nn.Module, trained: list[nn.Parameter], validates: bool) -> IslandMember | None:
    """Return this process in its island; None where a worker is one process. ``validates``: the script gives ``validate``
    or ``recalibrate``."""
    if island_environment() is None:
        return None
    from taut.parallel.island import island

    return IslandMember(island(), model, trained, validates)

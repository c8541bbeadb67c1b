"""One process of an island as a worker: it exchanges the part of the model that it holds, with the same part of others.

A run of islands is one run for each part: process ``j`` of every island is in run ``j``, with a supervisor, a strategy
and a codec of its own. Four things are common to an island, and come from its process 0: the batches
(``island_share.py``), the parameters that all of its processes hold alike, the score, and its end.

A process that waits for the others of its island must not hold up its own run: the run's other members may need it, and
wait in turn. So it waits in ``agree``, with its exchange idling. Between such meetings the processes of an island need
one another only.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import torch

from taut.config import island_environment
from taut.core.callbacks import do_nothing
from taut.errors import Misuse
from taut.worker.model.sharded import local, mesh_of

if TYPE_CHECKING:
    from torch import nn

    from taut.parallel.island import Island
    from taut.worker.session import WorkerSession

MESSAGE = 4  # numbers in a message of process 0
OVER, BATCH, PIECE, TURN = range(4)  # what a message says; a piece of a batch is followed by others
MOST = 2**62
POLL_S = 0.0005
LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")  # as gloo puts it
END_S = 10.0  # for the launcher to notice


class IslandMember:
    """This process in its island. ``own``: the parameters that it exchanges; ``alike``: those that all have."""

    def __init__(self, group: Island, model: nn.Module, trained: list[nn.Parameter]) -> None:
        from taut.parallel.island import check_cut, check_device
        from taut.parallel.whole import held_by  # imports torch.distributed.tensor: only for islands

        check_device(((name, local(each)) for name, each in model.named_parameters()), "cpu")
        check_cut(model)
        _check_ddp(model, group)
        _check_meshes(model, group.size)
        self._averages = _check_fsdp(model, group)  # gradients, over the processes
        self.group = group
        self.filed_under = 0  # in checkpoints: the rank of process 0, which all processes of the island have in common
        holders = held_by(model, group)
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        alike = [each for each in trained if len(holders[names[id(each)]]) > 1]
        self.own = trained if group.rank == 0 else [each for each in trained if not any(each is one for one in alike)]
        self.alike = sorted((local(each) for each in alike), key=lambda tensor: str(tensor.dtype))
        if self.agree(float(not self.own)):
            raise Misuse(
                f"an island of {group.size} with a process whose parameters process 0 has, too",
                "a model that is cut, each process with a part of its own",
                "taut.parallel cuts layers; without a cut, leave --island out",
            )

    def check_split(self) -> None:
        """Raise ``Misuse`` unless the gradients of the island's processes are averaged, all of them: each process may
        compute with a part of every batch then."""
        if not self._averages or self.alike:
            expected = "a model that FSDP cuts as a whole, which averages the gradients of the processes"
            remedy = (
                "fully_shard(model, mesh=taut.parallel.island().mesh); or leave split out: all compute the whole batch"
            )
            raise Misuse("worker.batches(..., split=True) in an island", expected, remedy)

    def share(self) -> None:
        """Give all processes process 0's values of what they hold alike, after an exchange has moved them."""
        import torch.distributed as dist

        with torch.no_grad():
            for _, group in groupby(self.alike, key=lambda tensor: tensor.dtype):
                tensors = list(group)
                values = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
                dist.broadcast(values, 0)
                if self.group.rank:
                    pieces = torch.split(values, [each.numel() for each in tensors])
                    for tensor, piece in zip(tensors, pieces, strict=True):
                        tensor.copy_(piece.view(tensor.shape))

    def agree(self, value: float, idle: Callable[[], None] = do_nothing, *, total: bool = False) -> float:
        """Wait until all processes of the island are here, and return the largest of their values, or the ``total``.
        ``idle`` is called meanwhile."""
        import torch.distributed as dist

        told = torch.tensor([value], dtype=torch.float64)
        work = dist.all_reduce(told, dist.ReduceOp.SUM if total else dist.ReduceOp.MAX, async_op=True)
        assert work is not None
        while not work.is_completed():
            idle()
            time.sleep(POLL_S)
        work.wait()
        return float(told)

    def clip(self, parameters: Sequence[nn.Parameter], limit: float, idle: Callable[[], None] = do_nothing) -> None:
        """Clip the gradient of the whole model to the norm ``limit``: that of ``parameters``, and of the other processes'
        own ones. What all hold alike counts once."""
        from taut.parallel.clipping import clip_parts

        own = {id(each) for each in self.own}
        gradients = [(id(each) in own, local(each.grad)) for each in parameters if each.grad is not None]
        clip_parts(gradients, limit, lambda square: self.agree(square, idle, total=True))

    def same_score(self, score: float | None) -> float | None:
        """Return process 0's score, at every process."""
        import torch.distributed as dist

        told = torch.tensor([score is not None, score or 0.0], dtype=torch.float64)
        dist.broadcast(told, 0)
        return float(told[1]) if told[0] else None

    def same_batches(self, batches: Iterable[torch.Tensor]) -> Iterable[torch.Tensor]:
        """Yield process 0's batches, at every process; all have as many of the same shapes."""
        import torch.distributed as dist

        for batch in batches:
            given = batch.contiguous().clone()
            dist.broadcast(given, 0)
            yield given

    def await_end(self, error: BaseException) -> None:
        """Wait to be ended by the launcher, where ``error`` says that another process of the island is gone: an island is
        one worker, and that one was reported."""
        if isinstance(error, RuntimeError) and any(word in str(error) for word in LOST):
            time.sleep(END_S)

    def file_under(self, rank: int) -> int:
        """Return the rank of process 0; ``rank``: this process's own, in the run of its part."""
        import torch.distributed as dist

        told = torch.tensor([rank])
        dist.broadcast(told, 0)
        self.filed_under = int(told)
        return self.filed_under

    def agree_on_checkpoint(self, number: int, busy: bool, rank: int) -> int:
        """Return the number of the checkpoint that all processes take now: the one that process 0 gives, or 0 where it
        gives none or a process is ``busy``. ``rank``: this process's own."""
        import torch.distributed as dist

        leads = self.group.rank == 0
        told = torch.tensor([number if leads else MOST, rank if leads else MOST, 0 if busy else MOST])
        dist.all_reduce(told, dist.ReduceOp.MIN)
        wanted, self.filed_under, free = told.tolist()
        return int(min(wanted, free))

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


def _check_fsdp(model: nn.Module, group: Island) -> bool:
    """Refuse parameters that FSDP pads: it moves them to memory of its own. Return whether FSDP cuts the model."""
    module = sys.modules.get("torch.distributed.fsdp")
    if module is None or not any(isinstance(each, module.FSDPModule) for each in model.modules()):
        return False
    for name, parameter in model.named_parameters():
        if parameter.shape and parameter.shape[0] % group.size:
            given = f"{name!r} of shape {tuple(parameter.shape)} under FSDP in an island of {group.size}"
            raise Misuse(given, f"a first dimension that {group.size} divides")
    return True


def _check_meshes(model: nn.Module, size: int) -> None:
    """Refuse parameters that are cut among other processes than the island's, or along two dimensions of a mesh."""
    for name, parameter in model.named_parameters():
        mesh = mesh_of(parameter)
        if mesh is not None and tuple(mesh.shape) != (size,):
            given = f"{name!r} on a mesh of {' x '.join(map(str, mesh.shape))} processes in an island of {size}"
            raise Misuse(given, f"a mesh of {size}, in one dimension", "mesh=taut.parallel.island().mesh")


def _check_ddp(model: nn.Module, group: Island) -> None:
    """Refuse DistributedDataParallel: the processes of an island see the same batches, so it would average equal
    gradients."""
    module = sys.modules.get("torch.nn.parallel.distributed")
    if module is None or not any(isinstance(each, module.DistributedDataParallel) for each in model.modules()):
        return
    raise Misuse(
        f"DistributedDataParallel in an island of {group.size}, each process with the whole model and the same batches",
        "a model that is cut",
        "leave --island and DistributedDataParallel out: each process is a worker then, and --strategy sync averages the "
        "gradients; or cut by fully_shard or taut.parallel",
    )


def island_member(model: nn.Module, trained: list[nn.Parameter]) -> IslandMember | None:
    """Return this process in its island; None where a worker is one process."""
    if island_environment() is None:
        _check_whole(model)
        return None
    from taut.parallel.island import island

    return IslandMember(island(), model, trained)


def _check_whole(model: nn.Module) -> None:
    """Refuse a worker that is one process and has a part of the model only."""
    for name, parameter in model.named_parameters():
        mesh = mesh_of(parameter)
        if mesh is not None and mesh.size() > 1 and any(each.is_shard() for each in parameter.placements):  # type: ignore[attr-defined]
            raise Misuse(
                f"{name!r}, of which this process has a part, in a run without islands",
                "the whole model in each worker",
                f"taut run --workers {mesh.size()} --island {mesh.size()}",
            )

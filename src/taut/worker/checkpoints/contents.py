"""What a worker's part of a checkpoint contains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from taut.codecs import spec
from taut.worker.checkpoints.reflect import remembered
from taut.worker.checkpoints.tree import fold

if TYPE_CHECKING:
    import torch

    from taut.worker.session import WorkerSession
    from taut.worker.torch_worker import TorchWorker


def unsteady(seat: WorkerSession) -> tuple[str, ...]:
    """How the names of tensors begin that change before the optimizer's step: in the forward pass (batch-norm statistics)
    or, where gradients are sent during the backward pass, with them."""
    return ("buffer.", "random.", "coder.", "method.") if seat.talk.exchanges_gradients else ("buffer.", "random.")


def contents(
    worker: TorchWorker, seat: WorkerSession, also: Mapping[str, Any], states: dict[str, Any], tensors: dict[str, Any]
) -> dict[str, Any]:
    """All that makes up this worker: its tensors, as they are, go to ``tensors``; the rest as what goes to JSON."""
    replica, arena, state = seat.replica, seat.arena, seat.replica.codec_state
    tensors["w"] = _tensor(arena.vector)
    if replica.talks:
        tensors["b"] = _tensor(state.b)
        if state.r is not None:
            tensors["r"] = _tensor(state.r)
    named = arena.named()
    for name, tensor, kind in named:
        if kind != "trained":
            tensors[f"{kind}.{name}"] = tensor
    return {
        "run": seat.run,
        "rank": seat.node.rank,
        "model": [msgspec.to_builtins(each) for each in arena.specs(named)],
        "steps": worker.steps,
        "samples": worker.samples,
        "loss": worker.loss,
        "seconds": dict(worker.watch.seconds),
        "phase": seat.phases.number,
        "phase_steps": seat.phases.steps,
        "have": {str(origin): count for origin, count in seat.talk.have().items()},
        "talk": seat.talk.kept(),
        "method": _method(seat, tensors),
        "grid": replica.grid.pack() if replica.grid is not None else None,
        "replica": replica.kept(),
        "codec": spec(replica.codec),
        "memory": remembered(state, tensors) if replica.talks else {},
        "coder": _coder(seat, tensors),
        "optimizer": fold(worker.optimizer.state_dict(), "optimizer", tensors, "the optimizer's state"),
        "also": {name: fold(each.state_dict(), f"also.{name}", tensors, name) for name, each in also.items()},
        "random": fold(states, "random", tensors),
    }


def _method(seat: WorkerSession, tensors: dict[str, Any]) -> dict[str, Any]:
    """What the method remembers, of a worker that is alone. Of several, each is at another point of a round: they start
    from a point that all can agree on, the weights, and keep only what can go on from there."""
    state = getattr(seat.talk, "method_state", None)
    if state is None:
        return {}
    kind = seat.phases.choice.kind
    only = None if seat.node.workers == 1 else (*kind.keeps_common, *kind.keeps_own)
    return remembered(state, tensors, "method", only)


def _coder(seat: WorkerSession, tensors: dict[str, Any]) -> dict[str, Any]:
    """What a codec of gradients keeps for later, where ``sync`` has one."""
    coder = getattr(getattr(seat.talk, "local", None), "coder", None)
    state = None if coder is None else coder.__dict__.get("_state")
    if state is None:
        return {}
    if state.r is not None:
        tensors["coder.r"] = _tensor(state.r)
    return remembered(state, tensors, "coder")


def _tensor(vector: Any) -> torch.Tensor:
    import torch

    found: torch.Tensor = torch.from_numpy(vector) if isinstance(vector, np.ndarray) else vector.detach()
    return found

"""What a worker's part of a checkpoint contains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch

from taut.codecs import spec
from taut.worker.checkpoints.reflect import remembered
from taut.worker.checkpoints.state_tree import fold
from taut.worker.optimizer.joined import parameters_of

if TYPE_CHECKING:
    from taut.worker.participant import Participant
    from taut.worker.session import WorkerSession


def contents(
    worker: Participant,
    session: WorkerSession,
    also: Mapping[str, Any],
    states: dict[str, Any],
    tensors: dict[str, Any],
) -> dict[str, Any]:
    """Return this worker's state as JSON values; put its tensors, as they are, into ``tensors``."""
    replica, params, state = session.replica, session.params, session.replica.codec_state
    tensors["w"] = _tensor(params.vector)
    if replica.uses_codec:
        tensors["b"] = _tensor(replica.shared())
        if state.r is not None:
            tensors["r"] = _tensor(state.r)
    named = params.named()
    for name, tensor, kind in named:
        if kind != "trained":
            tensors[f"{kind}.{name}"] = tensor
    return {
        "run": session.run,
        "rank": session.comm.rank,
        "model": [msgspec.to_builtins(each) for each in params.specs(named)],
        "cuts": params.cuts(),
        "steps": worker.steps,
        "samples": worker.samples,
        "own": worker.own_position(),
        "loss": worker.loss,
        "seconds": dict(worker.watch.seconds),
        "phase": session.phases.number,
        "growths": session.phases.growths,
        "phase_steps": session.phases.steps,
        "have": {str(origin): count for origin, count in session.exchange.have().items()},
        "talk": session.exchange.kept(),
        "method": _method(session, tensors),
        "grid": replica.grid.pack() if replica.grid is not None else None,
        "replica": replica.kept(),
        "codec": spec(replica.codec),
        "memory": remembered(state, tensors) if replica.uses_codec else {},
        "coder": _coder(session, tensors),
        "optimizer": fold(worker.optimizer.state_dict(), "optimizer", tensors, "the optimizer's state"),
        "optimizer_names": params.names_of(parameters_of(worker.optimizer)),
        "also": {name: fold(each.state_dict(), f"also.{name}", tensors, name) for name, each in also.items()},
        "scaler": fold(worker.scaling.state(), "scaler", tensors, "the scaler"),
        "random": fold(states, "random", tensors),
    }


def _method(session: WorkerSession, tensors: dict[str, Any]) -> dict[str, Any]:
    """Return the state of the method, for a worker that is alone. Several workers are each at another point of a round:
    they resume from a point that all can agree on, the weights, and keep only what can continue from there."""
    state, kind = session.exchange.method_state, session.phases.choice.kind
    if state is None:
        return {}
    only = None if session.comm.workers == 1 else (*kind.keeps_common, *kind.keeps_own)
    return remembered(state, tensors, "method", only)


def _coder(session: WorkerSession, tensors: dict[str, Any]) -> dict[str, Any]:
    """Return the residual of a codec of gradients, if ``sync`` has one."""
    coder = session.exchange.coder
    state = None if coder is None else coder.__dict__.get("_state")
    if state is None:
        return {}
    if state.r is not None:
        tensors["coder.r"] = _tensor(state.r)
    return remembered(state, tensors, "coder")


def _tensor(vector: Any) -> torch.Tensor:
    found: torch.Tensor = torch.from_numpy(vector) if isinstance(vector, np.ndarray) else vector.detach()
    return found

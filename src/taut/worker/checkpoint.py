"""A worker's part of a run's checkpoints: a copy in memory between two steps, then a file, written beside training.

The copy is taken when the loop has asked for its next batch: everything that the script does after a step (a scheduler's
step, say) is in it then, and the batch at hand is not trained on yet. So a run that is continued from here hands out
that very batch, with the random states as they were before it was fetched.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from taut.codecs import spec
from taut.core.checkpoints import part_name
from taut.core.messages import CheckpointBegun, CheckpointDone
from taut.errors import Misuse, TautError
from taut.worker.checkpoint_file import write_part
from taut.worker.checkpoint_tree import fold
from taut.worker.random_states import put_back_random_states, random_states
from taut.worker.resumption import Resumption
from taut.worker.state_memory import remembered

if TYPE_CHECKING:
    import torch

    from taut.worker.seat import Seat
    from taut.worker.torch_worker import TorchWorker


def check_also(also: Mapping[str, Any]) -> None:
    """``Misuse`` unless everything in it can be saved and restored.

    >>> check_also({"step": 3})
    Traceback (most recent call last):
    taut.errors.Misuse: join(also={'step': 3}): expected objects with state_dict and load_state_dict
    """
    for name, each in also.items():
        if not hasattr(each, "state_dict") or not hasattr(each, "load_state_dict"):
            raise Misuse(f"join(also={{{name!r}: {each!r}}})", "objects with state_dict and load_state_dict")
        fold(each.state_dict(), name, {}, blame=f"join(also={{{name!r}: ...}})")


class Keeper:
    """``folder``: where checkpoints go; None: there are none. ``resumed``: the checkpoint that this run continues; its
    random states, schedulers and learning rates are put back when the first batch is handed out, so that what the script
    did before does not matter."""

    def __init__(self, worker: TorchWorker, seat: Seat, folder: Path | None, also: Mapping[str, Any]) -> None:
        self.worker, self.seat, self.folder, self.also = worker, seat, folder, dict(also)
        self.resumed: Resumption | None = seat.resumption
        self.taken = 0  # the number of the last one
        self._settled = self.resumed is None
        self._accumulating = False
        self._writer: threading.Thread | None = None
        if self.resumed is not None:
            self.resumed.restore_worker(worker, self.also)
            self._put_back_random()

    @property
    def wanted(self) -> bool:
        """The supervisor asks for a checkpoint that was not taken yet."""
        asked = self.folder is not None and self.seat.node.facts.checkpoint > self.taken
        return asked and (self._writer is None or not self._writer.is_alive())

    @property
    def can_take(self) -> bool:
        """It is wanted, and no gradients are being gathered over several batches: they are not in it."""
        return self.wanted and not self._accumulating and not self.seat.talk.gathering

    def before_batch(self, accumulating: bool) -> dict[str, Any] | None:
        """A batch is about to be fetched: the random states, where a checkpoint can be taken. ``accumulating``: no step
        was made with the last one."""
        self._accumulating = accumulating
        if not self._settled:
            self._put_back_random()
        return random_states() if self.can_take else None

    def at_batch(self, states: dict[str, Any] | None) -> None:
        """The batch is here, and is handed out next."""
        self._settle()
        if states is not None and self.wanted:
            self._take(states)

    def while_waiting(self) -> None:
        """No data at hand, for who knows how long: now is as good a moment as any."""
        if self.can_take:
            self._settle()
            self._take(random_states())

    def after_exchange(self) -> None:
        """In a loop of the script's own: there is no better moment."""
        if self.can_take:
            self._settled = True
            self._take(random_states())

    def _settle(self) -> None:
        if not self._settled and self.resumed is not None:
            self.resumed.restore_schedule(self.worker.optimizer, self.also)
            self._settled = True

    def _put_back_random(self) -> None:
        states = self.resumed.random_states() if self.resumed is not None else None
        if states is not None:
            put_back_random_states(states)

    # --------------------------------------------------------------------------------------------------- one

    def _take(self, states: dict[str, Any]) -> None:
        watch, node = self.worker.watch, self.seat.node
        watch.charge("data")
        self.taken = number = node.facts.checkpoint
        tensors: dict[str, torch.Tensor] = {}
        try:
            document = {"number": number, **snapshot(self.worker, self.seat, self.also, states, tensors)}
        except Misuse as error:  # an optimizer with something odd in its state: training goes on
            node.say(CheckpointDone(number, 0, "", str(error)[:4000]))
            return
        holds = self.seat.leases.unfinished(self.worker.progress())
        node.say(CheckpointBegun(number, holds, self.seat.phases.number, self.worker.steps))
        pause_s = watch.charge("encode")
        assert self.folder is not None
        path = self.folder / str(number) / part_name(node.rank)
        self._writer = threading.Thread(
            target=self._write, args=(path, number, document, tensors, pause_s), name="taut-checkpoint", daemon=True
        )
        self._writer.start()

    def _write(self, path: Path, number: int, document: dict[str, Any], tensors: Any, pause_s: float) -> None:
        nbytes, digest, error = 0, "", ""
        try:
            nbytes, digest = write_part(path, document, tensors)
        except (TautError, OSError, MemoryError) as failure:
            error = (str(failure) or type(failure).__name__)[:4000]
        self.seat.node.say(CheckpointDone(number, nbytes, digest, error, pause_s))


def snapshot(
    worker: TorchWorker, seat: Seat, also: Mapping[str, Any], states: dict[str, Any], tensors: dict[str, Any]
) -> dict[str, Any]:
    """All that makes up this worker, copied once: tensors into ``tensors``, the rest as what goes to JSON."""
    replica, arena, state = seat.replica, seat.arena, seat.replica.codec_state
    tensors["w"] = _copied(arena.vector)
    if replica.talks:
        tensors["b"] = _copied(state.b)
        if state.r is not None:
            tensors["r"] = _copied(state.r)
    for name, tensor, kind in arena.named():
        if kind != "trained":
            tensors[f"{kind}.{name}"] = tensor.cpu().clone()
    return {
        "run": seat.run,
        "rank": seat.node.rank,
        "model": [msgspec.to_builtins(each) for each in arena.specs()],
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


def _method(seat: Seat, tensors: dict[str, Any]) -> dict[str, Any]:
    """What the method remembers, of a worker that is alone. Of several, each is at another point of a round: they start
    from a point that all can agree on, the weights."""
    state = getattr(seat.talk, "method_state", None)
    return remembered(state, tensors, "method") if state is not None and seat.node.workers == 1 else {}


def _coder(seat: Seat, tensors: dict[str, Any]) -> dict[str, Any]:
    """What a codec of gradients keeps for later, where ``sync`` has one."""
    coder = getattr(getattr(seat.talk, "local", None), "coder", None)
    state = None if coder is None else coder.__dict__.get("_state")
    if state is None:
        return {}
    if state.r is not None:
        tensors["coder.r"] = _copied(state.r)
    return remembered(state, tensors, "coder")


def _copied(vector: Any) -> torch.Tensor:
    import torch

    if isinstance(vector, np.ndarray):
        return torch.from_numpy(vector.copy())
    copied: torch.Tensor = vector.detach().cpu()
    return copied.clone() if vector.device.type == "cpu" else copied

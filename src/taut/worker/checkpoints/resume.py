"""Resuming a run from a checkpoint: which of its parts this worker takes, and what it takes of them.

The run's weights come from the parts as the strategy has it (``founded``); every worker but the founder then gets them
from a donor, as any newcomer does. A worker's own state (optimizer, residual, random states, counts) comes from its own
part: with n workers, worker i takes the i-th part and, if there are fewer workers than parts, also the (i + n)-th, and so
on, so that no residual is lost. A worker without a part takes the first one's optimizer.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch

from taut.codecs import Grid, spec
from taut.core.checkpoint_names import MANIFEST, checkpoint_of, part_name
from taut.core.messages import TensorSpec
from taut.errors import Misuse, StorageFailed
from taut.strategies.compatibility import agrees
from taut.worker.checkpoints.file import Part, read_part
from taut.worker.checkpoints.recut import RecutPart
from taut.worker.checkpoints.reflect import recall
from taut.worker.exchange.base import Exchange
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.replica import Replica
from taut.worker.model.sharded import like_whole, local
from taut.worker.model.vector_views import FlatParamsCodec
from taut.worker.optimizer.joined import parameters_of

if TYPE_CHECKING:
    from taut.strategies.registry import Choice
    from taut.worker.joining.island_member import IslandMember
    from taut.worker.participant import Participant
    from taut.worker.phases import Phases

log = logging.getLogger("taut")


class Resumption:
    """The checkpoint in ``folder``, for worker ``rank`` of ``workers`` with the strategy ``choice``. ``recut``: how to
    make a part from those of a model that was cut in another way, by their worker's rank."""

    def __init__(
        self, folder: Path, rank: int, workers: int, choice: Choice, recut: Callable[[int], Part] | None = None
    ) -> None:
        self._recut = recut
        self.folder, self.rank, self.workers, self.choice = folder, rank, workers, choice
        self._digests = _digests(folder)
        self.ranks = sorted(self._digests)
        self.mine = self.ranks[rank::workers]
        self._read: dict[int, Part] = {}

    @property
    def of_gradients(self) -> bool:
        """Return whether all replicas make the same steps, and so must have the same optimizer state."""
        return self.choice.is_method and self.choice.kind.vector == "gradients"

    def part(self, rank: int) -> Part:
        if rank not in self._read:
            if self._recut is not None:
                self._read[rank] = self._recut(rank)
            else:
                self._read[rank] = read_part(self.folder / part_name(rank), self._digests[rank])
        return self._read[rank]

    # -------------------------------------------------------------------------------------- the run's weights

    def founded(self, replica: Replica, workers: int) -> None:
        """Load the run's weights into the founder's replica."""
        if not self.ranks:
            raise StorageFailed(f"{self.folder} has no checkpoint: the run's folder must be on this machine, too")
        first, params = self.part(self.ranks[0]), replica.params
        check_model(first, params)
        _load_still(first, params)
        alike = agrees(self.choice) if replica.uses_codec else self.of_gradients
        replica.resume(self._weights(alike), Grid.unpack(first.document["grid"], params.names), workers)
        self.joined(replica, workers)

    def _weights(self, alike: bool) -> Any:
        """Return the first part's weights, if all have the same but for updates under way; else the mean."""
        total: Any = _shared(self.part(self.ranks[0])).numpy()
        if alike or len(self.ranks) == 1:
            return total
        total = total.astype(np.float64)
        for rank in self.ranks[1:]:
            total += _shared(self.part(rank)).numpy()
        return (total / len(self.ranks)).astype(np.float32)

    def joined(self, replica: Replica, workers: int) -> None:
        """Restore this worker's own state, once the replica has the run's weights."""
        if not self.mine:
            return
        mine = [self.part(rank) for rank in self.mine]
        check_model(mine[0], replica.params)
        _load_still(mine[0], replica.params)
        if replica.uses_codec:
            self._restore_codec(replica, mine, workers)
        elif not self.choice.kind.info.one_model:
            replica.params.load(mine[0].tensor("w").numpy())
        replica.restore(mine[0].document["replica"])

    def _restore_codec(self, replica: Replica, mine: list[Part], workers: int) -> None:
        params, state, first = replica.params, replica.codec_state, mine[0]
        shared = np.array(params.host(state.b))
        whole = len(mine) == 1 and np.array_equal(_shared(first).numpy(), shared)
        if whole:
            params.load(first.tensor("w").numpy())
        else:  # its own weights strayed from the shared ones: restore the mean stray of the parts that it takes
            strays = sum((part.tensor("w") - _shared(part)).double() for part in mine)
            params.load(shared + (strays / len(mine)).float().numpy())  # type: ignore[union-attr]
        if state.r is not None and all("r" in part.names for part in mine):
            state.kernels.load(state.r, sum(part.tensor("r") for part in mine).numpy())  # type: ignore[union-attr]
        if first.document["codec"] == spec(replica.codec):
            recall(state, first.document["memory"], first.tensor, state.w)
            if not whole and state.step_size is not None:
                state.step_size.strays = None  # the strays are others now: the next exchange measures nothing
            if workers != len(self.ranks):
                replica.retune(workers, state.staleness)

    # ------------------------------------------------------------------------------------------ the worker's

    @property
    def _own(self) -> Part | None:  # with this worker's counts and random states
        return self.part(self.mine[0]) if self.mine else None

    @property
    def _trained(self) -> Part | None:  # with this worker's optimizer, schedulers and the like
        if not self.ranks:
            return None
        return self.part(self.ranks[0]) if self.of_gradients or not self.mine else self._own

    def restore_phase(self, phases: Phases) -> None:
        """Restore how far the worker came in the present phase, which is the first one now. It must report that again."""
        part = self._own
        if part is None or phases.phase.steps is None:
            return
        at, first = (one.document["phase"] for one in (part, self.part(self.ranks[0])))
        steps = part.document["phase_steps"] if at == first else 0 if at < first else phases.phase.steps
        phases.steps = min(steps, phases.phase.steps - 1)

    def restore_worker(self, worker: Participant, also: Mapping[str, Any]) -> None:
        """Restore the counts, the optimizer, and everything beside it."""
        own, trained = self._own, self._trained
        if own is not None:
            worker.steps, worker.loss = own.document["steps"], own.document["loss"]
            worker.samples = sum(self.part(rank).document["samples"] for rank in self.mine)
            for kind, seconds in own.document["seconds"].items():
                worker.watch.seconds[kind] = worker.watch.seconds.get(kind, 0.0) + seconds
            worker.begin_own_at(*own.document.get("own", (0, 0)))
            worker.scaling.kept = own.tree("scaler")
        if trained is not None:
            _load_optimizer(trained, worker.optimizer)
            _load_also(trained, also)

    def restore_exchange(self, exchange: Exchange) -> None:
        part = self._own
        if part is not None:
            if part.document["phase"] == self.part(self.ranks[0]).document["phase"]:  # else it is of another exchange
                exchange.restore(part.document["talk"])
            self._restore_coder(exchange.coder, part)
        if self.choice.is_method and self.ranks:
            self._restore_method(exchange.method_state, part)

    def _restore_method(self, state: Any, part: Part | None) -> None:
        """Restore all of the method's state, for one worker alone. Else restore what all have alike, from the first part;
        and, if there are as many workers as before, what was each one's own."""
        kind, first = self.choice.kind, self.part(self.ranks[0])
        if self.workers == len(self.ranks) == 1:
            recall(state, first.document["method"], first.tensor)
            return
        recall(state, first.document["method"], first.tensor, only=kind.keeps_common)
        if part is not None and self.workers == len(self.ranks):
            recall(state, part.document["method"], part.tensor, only=kind.keeps_own)

    def _restore_coder(self, coder: FlatParamsCodec | None, part: Part) -> None:
        """Restore the residual of a codec of gradients; if there are fewer workers, each takes over others', too."""
        if coder is None or not part.document.get("coder") or part.document["codec"] != spec(coder.codec):
            return
        state: Any = coder._state
        recall(state, part.document["coder"], part.tensor, state.w)
        if state.r is not None:
            left = [self.part(rank).tensor("coder.r") for rank in self.mine if "coder.r" in self.part(rank).names]
            state.kernels.load(state.r, sum(left).numpy())  # type: ignore[union-attr]

    def restore_schedule(self, optimizer: torch.optim.Optimizer, also: Mapping[str, Any]) -> None:
        """Restore learning rates and schedulers again: a loop over epochs may have moved them on the way here."""
        trained = self._trained
        if trained is not None:
            groups = trained.tree("optimizer")["param_groups"]
            for group, kept in zip(optimizer.param_groups, groups, strict=True):
                group.update({name: value for name, value in kept.items() if name != "params"})
            _load_also(trained, also)
        self._read.clear()  # everything is restored: close the files

    def random_states(self) -> dict[str, Any] | None:
        states: dict[str, Any] | None = self._own.tree("random") if self._own is not None else None
        return states


def resumption(
    resumed: Mapping[str, Any], rank: int, workers: int, choice: Choice, params: FlatParams, member: IslandMember | None
) -> Resumption:
    """Return what the run's settings say of the checkpoint that it continues, for a worker or a process of an island.
    The model may be cut into another number of parts than it was."""
    folder, parts = Path(resumed["folder"]), int(resumed["parts"])
    own, size = (0, 1) if member is None else (member.group.rank, member.group.size)
    if parts == size:
        return Resumption(checkpoint_of(folder, own) if own else folder, rank, workers, choice)
    folders = [checkpoint_of(folder, part) for part in range(parts)]
    digests = [_digests(each) for each in folders]

    def recut(rank: int) -> Part:
        read = [read_part(each / part_name(rank), known[rank]) for each, known in zip(folders, digests, strict=True)]
        return RecutPart(read, own, params)

    return Resumption(folder, rank, workers, choice, recut)


def _digests(folder: Path) -> dict[int, str]:
    """Return the hash of each worker's part; none if the folder is not here: this machine does not share it, or this
    worker came so late that the checkpoint was replaced by others."""
    try:
        files = json.loads((folder / MANIFEST).read_text())["files"]
        return {int(part["rank"]): str(part["blake2b"]) for part in files.values()}
    except FileNotFoundError:
        log.warning("%s has no checkpoint: this worker begins with a fresh optimizer", folder)
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageFailed(f"{folder / MANIFEST} cannot be read: {error}") from None


def _shared(part: Part) -> torch.Tensor:
    """Return a part's shared weights; its own, if it is of an earlier phase, without shared ones, than others."""
    return part.tensor("b" if "b" in part.names else "w")


def check_model(part: Part, params: FlatParams) -> None:
    """Raise ``Misuse``, naming the first tensor in which the checkpoint's model differs."""
    kept = [msgspec.convert(each, TensorSpec) for each in part.document["model"]]
    for theirs, mine in itertools.zip_longest(kept, params.specs()):
        if theirs == mine:
            continue
        if theirs is None or mine is None:
            given, expected = f"a tensor {'more' if mine else 'less'}, {(mine or theirs).name!r}", f"{len(kept)} tensors"
        else:
            given, expected = _describe(mine), _describe(theirs)
        remedy = f"the checkpoint in {part.path.parent} is of another model: use the script and arguments that made it"
        if part.document.get("growths"):
            remedy = f"{part.path.parent} is of a model that has grown: join the grown one, and go on from there"
        raise Misuse(f"a model with {given}", expected, remedy)


def _describe(one: TensorSpec) -> str:
    shape = "x".join(str(size) for size in one.shape) or "scalar"
    layout = f" in memory order {one.layout}" if one.layout else ""
    return f"{one.part} tensor {one.name!r} of shape {shape} and type {one.dtype}{layout}"


def _load_still(part: Part, params: FlatParams) -> None:
    with torch.no_grad():
        for name, tensor, kind in params.named():
            if kind != "trained":
                tensor.copy_(part.tensor(f"{kind}.{name}"))


def _load_optimizer(part: Part, optimizer: torch.optim.Optimizer) -> None:
    kept = part.optimizer_state(optimizer)
    for number, parameter in enumerate(parameters_of(optimizer)):
        state = kept["state"].get(number, {})
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and value.ndim and value.shape == local(parameter).shape:
                state[key] = like_whole(value, parameter)
    try:
        optimizer.load_state_dict(kept)
    except (ValueError, KeyError) as error:
        raise Misuse(
            f"{type(optimizer).__name__} ({error})",
            f"the optimizer of the checkpoint in {part.path.parent}",
            "use the script and arguments that made it",
        ) from None


def _load_also(part: Part, also: Mapping[str, Any]) -> None:
    kept = part.tree("also", {})
    for name, each in also.items():
        if name not in kept:
            raise Misuse(f"join(also={{{name!r}: ...}})", f"one of {', '.join(kept) or 'nothing'}, as in the checkpoint")
        each.load_state_dict(kept[name])

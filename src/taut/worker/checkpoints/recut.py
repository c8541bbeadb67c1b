"""A checkpoint of a model that was cut into other parts than it is cut into now: joined, and cut anew.

Of a worker (an island, if its model was cut) the checkpoint has a file for each part. Every tensor of the whole model is
joined from them, and this process takes its piece: of the weights, of what was not sent yet, and of the optimizer's
state. What a codec or a strategy measured for one part (thresholds, momentum of its rounds) begins anew.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import torch

from taut.codecs.exact_grid import snap
from taut.core.messages import TensorSpec
from taut.errors import Misuse
from taut.worker.checkpoints.file import Part
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.sharded import own_piece
from taut.worker.optimizer.joined import Optimizer, parameters_of

VECTORS = ("w", "b", "r")  # of all trained elements


class RecutPart(Part):
    """The part of process ``own`` of an island, whose model is in ``params``, made from the ``parts`` of another cut."""

    def __init__(self, parts: Sequence[Part], own: int, params: FlatParams) -> None:
        self.path, self._parts, self._own, self._params = parts[0].path, parts, own, params
        self._tensors = {name: self._vector(name) for name in VECTORS if name in parts[0].names}
        shared = self._tensors["b"] if "b" in self._tensors else self._tensors["w"].clone()  # only shared ones move
        grid = snap(shared.numpy(), params.sizes, params.names)
        fresh = {"codec": "", "memory": {}, "coder": {}, "method": {}}  # each is of one part alone
        specs = [msgspec.to_builtins(each) for each in params.specs()]
        self.document = {**parts[0].document, **fresh, "model": specs, "grid": grid.pack()}
        for name, _, kind in params.named():
            if kind != "trained":
                self._tensors[f"{kind}.{name}"] = self._piece("w", name)
        self.names = frozenset(self._tensors)

    def tensor(self, name: str) -> torch.Tensor:
        return self._tensors[name]

    def tree(self, name: str, otherwise: Any = None) -> Any:
        alike = self._parts[0] if name != "random" or self._own >= len(self._parts) else self._parts[self._own]
        return alike.tree(name, otherwise)

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the optimizer's state by the names of its parameters, whatever their order was."""
        saved = [part.tree("optimizer")["state"] for part in self._parts]
        known = [part.document["optimizer_names"] for part in self._parts]
        names = self._params.names_of(parameters_of(optimizer))
        state: dict[int, dict[str, Any]] = {}
        for number, name in enumerate(names):
            found = [(at, had[known[at].index(name)]) for at, had in enumerate(saved) if name in known[at]]
            found = [(at, each) for at, each in found if each]
            if found:
                state[number] = {key: self._state(name, key, found) for key in found[0][1]}
        groups, first = self._parts[0].tree("optimizer")["param_groups"], 0
        for group, mine in zip(groups, optimizer.param_groups, strict=True):
            group["params"] = list(range(first, first := first + len(mine["params"])))
        return {"state": state, "param_groups": groups}

    def _state(self, name: str, key: str, found: Sequence[tuple[int, dict[str, Any]]]) -> Any:
        """Return what the optimizer keeps of a parameter under ``key``: cut as the parameter is, if it has its shape."""
        at, first = found[0]
        shape = next(tuple(spec.shape) for spec in _specs(self._parts[at]) if spec.name == name)
        value = first[key]
        if not isinstance(value, torch.Tensor) or tuple(value.shape) != shape or not shape:
            return value
        return self._cut(name, [(at, each[key]) for at, each in found])

    def _vector(self, vector: str) -> torch.Tensor:
        pieces = [self._piece(vector, name) for name in self._params.names]
        return torch.cat([_flat(piece, spec) for piece, spec in zip(pieces, _trained(self._params), strict=True)])

    def _piece(self, vector: str, name: str) -> torch.Tensor:
        """Return this process's piece of a tensor: its elements in ``vector``, if it is trained, else itself."""
        found = [(at, piece) for at, part in enumerate(self._parts) if (piece := _in(part, vector, name)) is not None]
        if not found:
            remedy = (
                f"the checkpoint in {self.path.parent} is of another model: use the script and arguments that made it"
            )
            raise Misuse(f"a model with a tensor {name!r}", "the model of the checkpoint", remedy)
        return self._cut(name, found)

    def _cut(self, name: str, pieces: Sequence[tuple[int, torch.Tensor]]) -> torch.Tensor:
        """Return this process's piece of what all ``pieces``, with the number of their part, are together."""
        at, first = pieces[0]
        dim = self._parts[at].document["cuts"].get(name)
        whole = first if dim is None else torch.cat([piece for _, piece in pieces], dim)
        target = self._params.tensor_of(name)
        if whole.shape != target.shape:
            raise Misuse(f"{name!r} of shape {tuple(target.shape)}", f"{tuple(whole.shape)}, as in the checkpoint")
        return own_piece(whole, target)


def _specs(part: Part) -> list[TensorSpec]:
    return [msgspec.convert(each, TensorSpec) for each in part.document["model"]]


def _trained(params: FlatParams) -> list[TensorSpec]:
    return [spec for spec in params.specs() if spec.part == "trained"]


def _in(part: Part, vector: str, name: str) -> torch.Tensor | None:
    """Return the tensor ``name`` of a part, which may have it among its trained elements, or beside them."""
    offset = 0
    for spec in _specs(part):
        if spec.part != "trained":
            if spec.name == name:
                return part.tensor(f"{spec.part}.{name}")
            continue
        size = math.prod(spec.shape)
        if spec.name == name:
            order = _order(spec)
            piece = part.tensor(vector)[offset : offset + size].view([spec.shape[dim] for dim in order])
            return piece.permute([order.index(dim) for dim in range(len(order))])
        offset += size
    return None


def _order(spec: TensorSpec) -> list[int]:
    return [int(dim) for dim in spec.layout.split(",")] if spec.layout else list(range(len(spec.shape)))


def _flat(piece: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """Return the elements in memory order, as the vector has them."""
    return piece.permute(_order(spec)).reshape(-1)

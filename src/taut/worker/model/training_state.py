"""The state that a newcomer gets with the weights in mid-run: the optimizer's, and that of the objects in
``join(also=...)``. As in a checkpoint: typed JSON and tensors; nothing is unpickled.

The settings of the optimizer's groups (betas, weight decay, ...) are the donor's from then on: all must make the same
steps. Its learning rates are taken only with the scheduler that they belong to, if ``also`` has one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError

from taut.errors import MalformedMessage, Misuse
from taut.worker.checkpoints.file import part_views, unpacked
from taut.worker.checkpoints.state_tree import fold, unfold
from taut.worker.optimizer.joined import parameters_of

REMEDY = "start every worker of a run with the same script and the same arguments"
OWN = ("lr", "initial_lr")  # settings of a group: each worker's own, unless its scheduler is given, too


def pack_training(optimizer: torch.optim.Optimizer, also: Mapping[str, Any]) -> bytes:
    """Return the optimizer's state, and that of the objects in ``also``, as bytes.

    >>> def adam(layer):
    ...     return torch.optim.Adam(layer.parameters(), lr=0.1)
    >>> one, other = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
    >>> optimizer = adam(one); one(torch.ones(1, 2)).sum().backward(); optimizer.step()
    >>> fresh = adam(other)
    >>> load_training(pack_training(optimizer, {}), fresh, {})
    False
    >>> fresh.state[other.bias]["step"].item()
    1.0
    """
    tensors: dict[str, torch.Tensor] = {}
    document = {
        "kind": type(optimizer).__name__,
        "optimizer": fold(optimizer.state_dict(), "optimizer", tensors, "the optimizer's state"),
        "also": {name: fold(each.state_dict(), f"also.{name}", tensors, name) for name, each in also.items()},
    }
    return b"".join(part_views(document, {name: tensor.cpu() for name, tensor in tensors.items()}))


def load_training(
    data: bytes | memoryview, optimizer: torch.optim.Optimizer, also: Mapping[str, Any], again: bool = False
) -> bool:
    """Load the state; return whether it had a scheduler's position. ``again``: load only that, since the script's loop
    has moved it before its first batch. Raises ``Misuse`` that names a difference, or ``MalformedMessage``."""
    try:
        document, tensors = unpacked(data)
        kind, tree, others = (document[name] for name in ("kind", "optimizer", "also"))
        state, kept = unfold(tree, tensors.__getitem__), unfold(others, tensors.__getitem__)
        groups, moments = state["param_groups"], state["state"]
        sizes = [len(group["params"]) for group in groups]
        if not isinstance(kind, str) or not isinstance(moments, dict) or not isinstance(kept, dict):
            raise TypeError("no optimizer's state")
        names = {number: dict(each) for number, each in moments.items()}
    except (SafetensorError, struct.error, json.JSONDecodeError, RecursionError) as error:
        raise MalformedMessage(f"an optimizer's state that cannot be read: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise MalformedMessage(f"an optimizer's state that cannot be read: {type(error).__name__}") from None
    _check_kind(kind, sizes, optimizer)
    _check_moments(names, optimizer)
    _check_also(kept, also)
    scheduled = any(hasattr(each, "get_last_lr") for each in also.values())
    _load_optimizer(state, optimizer, scheduled, again)
    for name, each in also.items():
        if not again or hasattr(each, "get_last_lr"):
            _load_also(name, each, kept[name])
    return scheduled


def _load_also(name: str, each: Any, state: Any) -> None:
    try:
        each.load_state_dict(state)
    except Exception as error:  # the script's own code: it may raise anything
        given = f"join(also={{{name!r}: ...}}) ({type(error).__name__}: {error})"
        raise _other(given, f"a {type(each).__name__} that loads the other workers' state") from error


def _load_optimizer(state: dict[str, Any], optimizer: torch.optim.Optimizer, scheduled: bool, again: bool) -> None:
    if again:
        for group, given in zip(optimizer.param_groups, state["param_groups"], strict=True):
            group.update({name: given[name] for name in OWN if scheduled and name in given})
        return
    own = [{name: group[name] for name in OWN if name in group} for group in optimizer.param_groups]
    try:
        optimizer.load_state_dict(state)
    except Exception as error:  # it may be the script's own code, too
        raise _other(f"{type(optimizer).__name__} ({error})", "the optimizer of the other workers") from error
    if not scheduled:
        for group, rates in zip(optimizer.param_groups, own, strict=True):
            group.update(rates)


def _check_kind(kind: str, sizes: list[int], optimizer: torch.optim.Optimizer) -> None:
    mine = type(optimizer).__name__
    if kind != mine:
        raise _other(f"the optimizer {mine}", f"{kind[:64]}, as the other workers have")
    own = [len(group["params"]) for group in optimizer.param_groups]
    if own != sizes:
        raise _other(f"{mine} with groups of {own} parameters", f"{sizes}, as the other workers have")


def _check_moments(moments: dict[Any, dict[str, Any]], optimizer: torch.optim.Optimizer) -> None:
    """Raise unless each tensor is no larger than its parameter, and like the one that this worker has already."""
    parameters = parameters_of(optimizer)
    for number, given in moments.items():
        if type(number) is not int or not 0 <= number < len(parameters):
            raise _other(f"{len(parameters)} parameters", f"one with the number {number!r}, as the other workers have")
        parameter = parameters[number]
        mine = optimizer.state.get(parameter, {})
        for name, value in given.items():
            if not isinstance(value, torch.Tensor):
                continue
            kept = mine.get(name)
            like = kept if isinstance(kept, torch.Tensor) else None
            fits = value.numel() <= max(1, parameter.numel()) if like is None else value.shape == like.shape
            if not fits or (like is not None and value.dtype != like.dtype):
                shape = tuple(parameter.shape if like is None else like.shape)
                whose = f"{name!r} of parameter {number}"
                raise _other(f"{whose} of shape {shape}", f"{tuple(value.shape)} of {value.dtype}, as the others have")


def _check_also(kept: dict[str, Any], also: Mapping[str, Any]) -> None:
    for name in also:
        if name not in kept:
            others = ", ".join(sorted(map(str, kept)))[:200] or "nothing"
            raise _other(f"join(also={{{name!r}: ...}})", f"one of {others}, as the other workers have")


def _other(given: str, expected: str) -> Misuse:
    return Misuse(given, expected, REMEDY)

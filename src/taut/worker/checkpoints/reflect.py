"""The state of a codec, or of a strategy's method, between two steps, read field by field."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch

from taut.strategies.allreduce.round_agreement import RoundMachine
from taut.worker.checkpoints.state_tree import fold, unfold

# The weights are stored separately; the rest is made anew by ``start``, or comes with ``retune`` and the roster.
_NEVER = ("w", "b", "r", "kernels", "grid", "words", "workers", "local", "membership", "members")
_RENAMED = {"centre": "center", "lanes": "buckets"}  # fields under the names that earlier checkpoints have


def remembered(
    state: Any, tensors: dict[str, torch.Tensor], name: str = "codec", only: Collection[str] | None = None
) -> dict[str, Any]:
    """Fold numbers and vectors, and records and lists of them; leave out anything else. ``only``: these fields
    (``momentum``) and fields of records (``momentum.m``).

    >>> from taut.codecs import parse
    >>> codec = parse("threshold")
    >>> state = codec.start(np.zeros(64, np.float32), workers=2)
    >>> state.steering.patience = 7
    >>> kept = remembered(state, {})
    >>> fresh = codec.start(np.zeros(64, np.float32), workers=2); recall(fresh, kept, {}.__getitem__)
    >>> fresh.steering.patience
    7
    """
    kept: dict[str, Any] = {}
    for each in dataclasses.fields(state):
        value, full = getattr(state, each.name), f"{name}.{each.name}"
        within = _within(each.name, only)
        if each.name in _NEVER or within == ():
            continue
        if _record(value):
            kept[each.name] = {"$record": remembered(value, tensors, full, within)}
        elif isinstance(value, list) and value and all(_record(item) for item in value):
            items = [remembered(item, tensors, f"{full}.{index}") for index, item in enumerate(value)]
            kept[each.name] = {"$records": items}
        elif isinstance(value, RoundMachine):
            kept[each.name] = {"$completed": value.completed}
        elif _plain(value):
            kept[each.name] = fold(value, full, tensors)
    return kept


def recall(
    state: Any,
    kept: dict[str, Any],
    tensor: Callable[[str], torch.Tensor],
    w: Any = None,
    only: Collection[str] | None = None,
) -> None:
    """Restore ``state`` from the result of ``remembered``; fields that it no longer has are skipped. ``w``: the weights,
    to whose device tensors go. ``only``: as for ``remembered``."""
    for written, folded in kept.items():
        name = _RENAMED.get(written, written)
        within = _within(name, only)
        if not hasattr(state, name) or within == ():
            continue
        held = getattr(state, name)
        match folded:
            case {"$record": record}:
                if _record(held):
                    recall(held, record, tensor, w, within)
            case {"$records": records}:
                for item, record in zip(held or (), records, strict=False):
                    recall(item, record, tensor, w)
            case {"$completed": completed}:
                if completed:
                    held.last_round = type(held.last_round)(completed, True)  # the result of that round is not here
            case _:
                value = _like(w, unfold(folded, tensor))
                if isinstance(held, np.ndarray) and isinstance(value, np.ndarray) and held.shape == value.shape:
                    held[...] = value  # in place: there may be other views of it
                else:
                    setattr(state, name, value)


def _within(name: str, only: Collection[str] | None) -> Collection[str] | None:
    """Return which fields of a field are wanted: None for all of it, () for nothing.

    >>> [_within(name, ("a", "b.c")) for name in ("a", "b", "c")], _within("c", None)
    ([None, ('c',), ()], None)
    """
    if only is None or name in only:
        return None
    return tuple(each.removeprefix(f"{name}.") for each in only if each.startswith(f"{name}."))


def _record(value: Any) -> bool:
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return False
    return not type(value).__dataclass_params__.frozen  # type: ignore[attr-defined]


def _plain(value: Any) -> bool:
    """Return whether this is a number, a text or a vector, or a dictionary, list or tuple of them."""
    if isinstance(value, dict):
        return all(_plain(item) for item in value.values())
    if isinstance(value, list | tuple):
        return all(_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float | str | np.ndarray | np.generic | torch.Tensor)


def _like(w: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _like(w, item) for key, item in value.items()}
    return value.to(w.device) if isinstance(value, torch.Tensor) and isinstance(w, torch.Tensor) else value

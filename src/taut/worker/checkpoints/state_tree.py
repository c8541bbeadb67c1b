"""The result of ``state_dict`` as JSON with the tensors beside it, and back: the same values of the same types."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from taut.errors import Misuse
from taut.worker.model.sharded import local

_PLAIN = (type(None), bool, int, float, str)


def fold(value: Any, name: str, tensors: dict[str, torch.Tensor], blame: str = "") -> Any:
    """Return ``value`` for JSON; put tensors into ``tensors`` as they are, under names that begin with ``name``: copy
    them before they change. Of a tensor that is cut, that is this process's piece. Raises ``Misuse`` for anything but
    tensors, numbers, texts, and lists, tuples and dictionaries of them.

    >>> tensors = {}
    >>> fold({0: {"step": torch.ones(()), "betas": (0.9, 0.99)}}, "optimizer", tensors)
    {'$pairs': [[0, {'step': {'$tensor': 'optimizer.0.step'}, 'betas': {'$tuple': [0.9, 0.99]}}]]}
    >>> unfold(_, tensors.__getitem__)
    {0: {'step': tensor(1.), 'betas': (0.9, 0.99)}}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_complex() or value.is_quantized:
            raise Misuse(f"{blame or name} with a tensor {name} of layout {value.layout}", "dense real tensors")
        tensors[name] = local(value).detach()
        return {"$tensor": name}
    if isinstance(value, np.ndarray):
        plain = value.flags.writeable and value.flags.c_contiguous
        tensors[name] = torch.from_numpy(value if plain else np.array(value, order="C"))
        return {"$array": name}
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Counter):
        return {"$counter": list(map(list, value.items()))}
    if isinstance(value, dict):
        return _fold_dict(value, name, tensors, blame)
    kinds: dict[type, str] = {tuple: "$tuple", deque: "$deque"}
    if type(value) is list or type(value) in kinds:
        items = list(value)
        if not all(type(item) in _PLAIN for item in value):  # plain items need no folding: random states are long
            items = [fold(item, f"{name}.{index}", tensors, blame) for index, item in enumerate(value)]
        return items if type(value) is list else {kinds[type(value)]: items}
    raise Misuse(
        f"{blame or name} with a {type(value).__name__} ({name})",
        "tensors, numbers, texts, and lists, tuples and dictionaries of them",
        "checkpoints hold nothing that would have to be unpickled",
    )


def _fold_dict(value: dict[Any, Any], name: str, tensors: dict[str, torch.Tensor], blame: str) -> Any:
    if type(value) not in (dict, OrderedDict, defaultdict):
        raise Misuse(f"{blame or name} with a {type(value).__name__}", "plain dictionaries")
    folded = [(key, fold(item, f"{name}.{key}", tensors, blame)) for key, item in value.items()]
    if all(type(key) is str and not key.startswith("$") for key in value):
        return dict(folded)
    bad = [key for key in value if type(key) not in _PLAIN]
    if bad:
        raise Misuse(f"{blame or name} with the key {bad[0]!r}", "keys that are numbers or texts")
    return {"$pairs": [list(pair) for pair in folded]}


def unfold(folded: Any, tensor: Callable[[str], torch.Tensor]) -> Any:  # noqa: PLR0911  # one for each kind
    """Return the value that was folded."""
    if isinstance(folded, list):
        return [unfold(item, tensor) for item in folded]
    if not isinstance(folded, dict):
        return folded
    if len(folded) == 1:
        (kind, held) = next(iter(folded.items()))
        match kind:
            case "$tensor":
                return tensor(held)
            case "$array":
                return tensor(held).numpy()
            case "$tuple" | "$deque":
                return (tuple if kind == "$tuple" else deque)(unfold(item, tensor) for item in held)
            case "$counter":
                return Counter(dict(held))
            case "$pairs":
                return {key: unfold(item, tensor) for key, item in held}
    return {key: unfold(item, tensor) for key, item in folded.items()}


def check_also(also: Mapping[str, Any]) -> None:
    """Raise ``Misuse`` unless everything in ``also`` can be saved and restored.

    >>> check_also({"step": 3})
    Traceback (most recent call last):
    taut.errors.Misuse: join(also={'step': 3}): expected objects with state_dict and load_state_dict
    """
    for name, each in also.items():
        if not hasattr(each, "state_dict") or not hasattr(each, "load_state_dict"):
            raise Misuse(f"join(also={{{name!r}: {each!r}}})", "objects with state_dict and load_state_dict")
        fold(each.state_dict(), name, {}, blame=f"join(also={{{name!r}: ...}})")

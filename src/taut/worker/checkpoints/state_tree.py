"""The result of ``state_dict`` as JSON with the tensors beside it, and back: the same values of the same types."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.errors import Misuse

if TYPE_CHECKING:
    import torch

_PLAIN = (type(None), bool, int, float, str)


def fold(value: Any, name: str, tensors: dict[str, torch.Tensor], blame: str = "") -> Any:
    """Return ``value`` for JSON; put tensors into ``tensors`` as they are, under names that begin with ``name``: copy
    them before they change. Raises ``Misuse`` for anything but tensors, numbers, texts, and lists, tuples and
    dictionaries of them.

    >>> import torch
    >>> tensors = {}
    >>> fold({0: {"step": torch.ones(()), "betas": (0.9, 0.99)}}, "optimizer", tensors)
    {'$pairs': [[0, {'step': {'$tensor': 'optimizer.0.step'}, 'betas': {'$tuple': [0.9, 0.99]}}]]}
    >>> unfold(_, tensors.__getitem__)
    {0: {'step': tensor(1.), 'betas': (0.9, 0.99)}}
    """
    import torch

    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, torch.Tensor):
        tensors[name] = _checked(value, name, blame)
        return {"$tensor": name}
    if isinstance(value, np.ndarray):
        plain = value.flags.writeable and value.flags.c_contiguous
        tensors[name] = torch.from_numpy(value if plain else np.array(value, order="C"))
        return {"$array": name}
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Counter):
        return {"$counter": [[key, count] for key, count in value.items()]}
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
            case "$tuple":
                return tuple(unfold(item, tensor) for item in held)
            case "$deque":
                return deque(unfold(item, tensor) for item in held)
            case "$counter":
                return Counter(dict(held))
            case "$pairs":
                return {key: unfold(item, tensor) for key, item in held}
    return {key: unfold(item, tensor) for key, item in folded.items()}


def _checked(tensor: torch.Tensor, name: str, blame: str) -> torch.Tensor:
    import torch

    if tensor.layout != torch.strided or tensor.is_complex() or tensor.is_quantized:
        raise Misuse(f"{blame or name} with a tensor {name} of layout {tensor.layout}", "dense real tensors")
    return tensor.detach()

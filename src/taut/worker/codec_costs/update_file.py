"""An update from safetensors files: gradients or moments in one, the difference of two, or else the weights themselves.

Gradients are tensors named ``grad`` or ``gradient`` in some part of their name, first moments ``exp_avg``,
``momentum_buffer`` and the like. Only floating-point tensors count.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from taut.errors import Misuse
from taut.worker.standalone.worker import Vector

# In order of preference: what an update is closest to.
KINDS = (
    ("gradients", re.compile(r"(^|[._/])grad(ient)?s?($|[./])", re.IGNORECASE)),
    ("first moments", re.compile(r"(^|[._/])(exp_avg|momentum(_buffer)?|first_moment|mu)($|[./])", re.IGNORECASE)),
)


@dataclass(frozen=True)
class FoundUpdate:
    """``update``: one flat vector of all tensors; ``weights``: where it begins, or zeros. ``what``: the source, in
    words."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    update: Vector
    weights: Vector
    what: str


def read_update(paths: Sequence[Path]) -> FoundUpdate:
    """Read an update from one file, or the difference of two. Raises ``Misuse`` if there is none."""
    if len(paths) > 2:
        raise Misuse(f"{len(paths)} checkpoints", "one, or two whose difference is the update")
    tensors = [_read(path) for path in paths]
    if len(paths) == 2:
        return _difference(paths, tensors)
    for kind, pattern in KINDS:
        chosen = {name: tensor for name, tensor in tensors[0].items() if pattern.search(name)}
        if chosen:
            return _found(chosen, {}, f"the {kind} in {paths[0]}", paths[0])
    what = f"the weights in {paths[0]} themselves: it holds neither gradients nor moments"
    return _found(tensors[0], {}, what, paths[0])


def _difference(paths: Sequence[Path], tensors: Sequence[Mapping[str, Any]]) -> FoundUpdate:
    before, after = tensors
    for name in sorted(set(before) ^ set(after)):
        there, missing = paths if name in before else (paths[1], paths[0])
        raise Misuse(f"tensor {name!r}, which is in {there} and not in {missing}", "two checkpoints of one model")
    for name, tensor in before.items():
        if tensor.shape != after[name].shape:
            raise Misuse(
                f"tensor {name!r} of shape {tensor.shape} in {paths[0]} and {after[name].shape} in {paths[1]}",
                "two checkpoints of one model",
            )
    changes = {name: after[name] - tensor for name, tensor in before.items()}
    for path, each in zip(paths, tensors, strict=True):
        _check_finite(each, path)
    return _found(changes, before, f"what changed from {paths[0]} to {paths[1]}", paths[1])


def _found(update: Mapping[str, Any], weights: Mapping[str, Any], what: str, path: Path) -> FoundUpdate:
    _check_finite(update, path)
    flat = np.concatenate([tensor.ravel() for tensor in update.values()])
    if not flat.any():
        raise Misuse(f"{what}: all zero", "an update", "give two checkpoints that differ" if weights else "")
    base = np.concatenate([weights[name].ravel() for name in update]) if weights else np.zeros_like(flat)
    shapes = tuple(tensor.shape or (1,) for tensor in update.values())
    return FoundUpdate(tuple(update), shapes, flat, base, what)


def _check_finite(tensors: Mapping[str, Any], path: Path) -> None:
    for name, tensor in tensors.items():
        wrong = tensor.size - int(np.isfinite(tensor).sum())
        if wrong:
            raise Misuse(
                f"tensor {name!r} in {path} with {wrong} of {tensor.size} values NaN or infinite",
                "finite numbers",
                "take a checkpoint from before the training went wrong",
            )


def _read(path: Path) -> dict[str, Any]:
    """Read the floating-point tensors that have elements, by name, as float32."""
    if not path.is_file():
        raise Misuse(f"checkpoint {str(path)!r}", "a file that exists")
    found: dict[str, Any] = {}
    try:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  # it is no mapping
                tensor = file.get_tensor(name)
                if tensor.is_floating_point() and tensor.numel():
                    found[name] = tensor.float().numpy()
    except (SafetensorError, OSError, ValueError) as error:
        raise Misuse(
            f"checkpoint {str(path)!r} ({error})",
            "a safetensors file",
            "safetensors.torch.save_file(model.state_dict(), 'model.safetensors') writes one",
        ) from None
    if not found:
        raise Misuse(f"checkpoint {str(path)!r}", "floating-point tensors in it", "there are none")
    return found


def first_rows(shapes: Sequence[tuple[int, ...]], most: int) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return a part of every tensor: from where to where in the flat vector, and its shape. About ``most`` elements in
    all, the first rows of each, so that matrices stay matrices; everything if that is less.

    >>> first_rows([(100, 8), (8,)], 200)
    [(0, 192, (24, 8)), (800, 801, (1,))]
    """
    total, start, found = sum(math.prod(shape) for shape in shapes), 0, []
    for shape in shapes:
        size = math.prod(shape)
        rows = shape[0] if total <= most else max(1, shape[0] * most // total)
        part = (rows, *shape[1:])
        found.append((start, start + math.prod(part), part))
        start += size
    return found

"""Tensors of which this process holds a part only (torch's DTensor), in an island; for all others, the tensor itself.

torch.distributed.tensor is imported by whoever makes a DTensor: where it is not loaded, there is none.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import torch

_PART = re.compile(r"(.*)@(\d+)")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of ``tensor`` that this process holds: not a copy, and the same object every time."""
    return tensor._local_tensor if _is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def like_whole(part: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """Return ``part``, which is local, as ``whole`` is: a gradient for a DTensor is a DTensor."""
    if not _is_sharded(whole):
        return part
    kind: Any = type(whole.detach())
    made: torch.Tensor = kind.from_local(
        part,
        whole.device_mesh,  # type: ignore[attr-defined]
        whole.placements,  # type: ignore[attr-defined]
        run_check=False,
        shape=whole.shape,
        stride=whole.stride(),
    )
    return made


def cut_dim(tensor: torch.Tensor) -> int | None:
    """Return the dimension along which the processes of an island share ``tensor``; None where each has all of it.

    >>> cut_dim(torch.zeros(2))
    """
    if not _is_sharded(tensor):
        return None
    (placement,) = tensor.placements  # type: ignore[attr-defined]
    return placement.dim if placement.is_shard() else None


def mesh_of(tensor: torch.Tensor) -> Any:
    """Return the mesh of the processes that share ``tensor``; None where it is no DTensor.

    >>> mesh_of(torch.zeros(2))
    """
    return tensor.device_mesh if _is_sharded(tensor) else None  # type: ignore[attr-defined]


def own_piece(whole: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return this process's piece of a tensor that is cut as ``like`` is."""
    dim = cut_dim(like)
    if dim is None:
        return whole
    mesh = like.device_mesh  # type: ignore[attr-defined]
    number: int = mesh.get_local_rank()
    return whole.chunk(mesh.size(), dim)[number].contiguous()


def file_name(name: str, tensor: torch.Tensor) -> str:
    """Return the name of a tensor in a file of parts: with ``@`` and the dimension along which the parts are joined.

    >>> file_name("head.weight", torch.zeros(2))
    'head.weight'
    """
    dim = cut_dim(tensor)
    return name if dim is None else f"{name}@{dim}"


def joined_files(parts: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Return the whole model of its parts' files, in the order of the parts.

    >>> whole = joined_files([{"a@0": torch.zeros(2), "b": torch.ones(1)}, {"a@0": torch.ones(1), "c": torch.zeros(3)}])
    >>> {name: len(tensor) for name, tensor in whole.items()}
    {'a': 3, 'b': 1, 'c': 3}
    """
    whole: dict[str, torch.Tensor] = {}
    for part in parts:
        for written, tensor in part.items():
            found = _PART.fullmatch(written)
            if found is None:
                whole.setdefault(written, tensor)
            else:
                pieces = [other[written] for other in parts if written in other]
                whole.setdefault(found[1], torch.cat(pieces, int(found[2])))
    return whole


def _is_sharded(tensor: torch.Tensor) -> bool:
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)

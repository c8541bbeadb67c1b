"""Tensors as the contents of a safetensors file, without a copy of them in memory."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import torch

from taut.errors import StorageFailed

_TYPES = {  # torch's name -> that of safetensors
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
    **{"bfloat16": "BF16", "bool": "BOOL", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "complex64": "C64"},
}

Tensors = Mapping[str, torch.Tensor]


def is_saved(dtype: torch.dtype) -> bool:
    """Return whether a file holds tensors of this type."""
    return str(dtype).removeprefix("torch.") in _TYPES


def file_views(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> list[memoryview]:
    """Return the contents of the file, in order; the tensors must be in host memory. Their bytes are not read yet.

    >>> from safetensors.torch import load
    >>> load(b"".join(file_views({"w": torch.ones(2)})))
    {'w': tensor([1., 1.])}
    """
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    views: list[memoryview] = []
    offset = 0
    for name, tensor in tensors.items():
        flat = tensor.detach().reshape(-1)
        raw: Any = flat.view(torch.uint8).numpy() if flat.numel() else b""
        view = memoryview(raw)
        dtype = _TYPES.get(str(tensor.dtype).removeprefix("torch."))
        if dtype is None:
            raise StorageFailed(f"tensor {name!r} is of type {tensor.dtype}, which safetensors does not hold")
        entries[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [offset, offset + len(view)]}
        offset += len(view)
        views.append(view)
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)  # tensors begin at a multiple of eight
    return [memoryview(struct.pack("<Q", len(header)) + header), *views]

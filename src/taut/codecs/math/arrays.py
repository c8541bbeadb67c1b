"""What NumPy and torch call by different names, for float32 vectors of either: in host memory, or on the device of a
tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

Vector = Any


def empty(size: int, like: Vector) -> Vector:
    """Return room for ``size`` numbers on the device of ``like``."""
    return np.empty(size, np.float32) if isinstance(like, np.ndarray) else like.new_empty(size)


def on_device_of(numbers: Any, like: Vector) -> Vector:
    """Return an array of NumPy on the device of ``like``."""
    if isinstance(like, np.ndarray):
        return numbers
    import torch

    return torch.from_numpy(numbers).to(like.device)


def in_host_memory(vector: Vector) -> Any:
    return vector if isinstance(vector, np.ndarray) else vector.cpu().numpy()

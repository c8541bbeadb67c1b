"""Vectors in host memory, as sums of payloads are made in them. ``device_vectors.py`` has the same for a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
Vector = Any  # float32: a NumPy array, or on a device a torch tensor


class HostVectors:
    """What a codec of vectors needs beside its payloads."""

    def room(self, size: int) -> Vector:
        """Return a vector of ``size`` elements, of no particular value."""
        return np.empty(size, np.float32)

    def put(self, target: Vector, source: F32) -> None:
        """Copy ``source``, which is in host memory, to ``target``."""
        target[:] = source

    def host(self, vector: Vector) -> F32:
        """Return ``vector`` in host memory."""
        found: F32 = vector
        return found

    def divide(self, x: Vector, by: float, out: Vector) -> None:
        """Write x / ``by``, in float32, to ``out``."""
        np.divide(x, np.float32(by), out=out)

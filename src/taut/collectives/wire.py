"""How the pieces of an all-reduce are written: as float32, or with half of the bytes, as bf16 or fp16.

Sums are of float32 always. What is sent in half precision is rounded in the sender's buffer too: so the sum that a
position passes on is the one that it keeps, and all positions end with the same bits. Each hop of a ring rounds once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]
FULL = "float32"
WIRES = (FULL, "bf16", "fp16")
_FULL_NBYTES, _HALF_NBYTES = 4, 2


@dataclass(frozen=True)
class Wire:
    """``name``: one of ``WIRES``. Elements from ``exact`` on, which are counts and rates, are float32 always.

    >>> wire, buffer = Wire("bf16", exact=2), np.float32([1.001, -3.0, 1.001])
    >>> data = wire.write(buffer, 0, 3); len(data), buffer.tolist()[:2]
    (8, [1.0, -3.0])
    >>> wire.read(data, 0, 3).tolist() == buffer.tolist()
    True
    """

    name: str = FULL
    exact: int = 0

    @property
    def full(self) -> bool:
        """Return whether all is float32."""
        return self.name == FULL

    @property
    def dtype(self) -> np.dtype[np.float32]:
        """Return the type of the buffer's elements, which are summed."""
        return np.dtype(np.float32)

    def nbytes(self, lo: int, hi: int) -> int:
        """Return how many bytes elements ``lo..hi-1`` take."""
        if self.full:
            return self.dtype.itemsize * (hi - lo)
        halves = max(0, min(hi, self.exact) - lo)
        return _HALF_NBYTES * halves + _FULL_NBYTES * (hi - lo - halves)

    def write(self, buffer: Vector, lo: int, hi: int) -> bytes:
        """Return elements ``lo..hi-1`` as bytes, and round them in the buffer as their receiver sees them."""
        end = max(lo, min(hi, self.exact))
        part = buffer[lo:end]
        halves = _to_fp16(part) if self.name == "fp16" else _to_bf16(part)
        part[:] = self._from(halves)
        return halves.tobytes() + buffer[end:hi].tobytes()

    def read(self, data: bytes | memoryview, lo: int, hi: int) -> Vector:
        """Return the elements that ``write`` has written."""
        if self.full:
            return np.frombuffer(data, self.dtype)
        halves = max(0, min(hi, self.exact) - lo)
        found = np.empty(hi - lo, np.float32)
        found[:halves] = self._from(np.frombuffer(data, np.float16 if self.name == "fp16" else np.uint16, halves))
        found[halves:] = np.frombuffer(data, np.float32, hi - lo - halves, offset=_HALF_NBYTES * halves)
        return found

    def _from(self, halves: npt.NDArray[np.uint16 | np.float16]) -> Vector:
        if self.name == "fp16":
            return halves.astype(np.float32)
        return (halves.astype(np.uint32) << 16).view(np.float32)


def _to_fp16(values: Vector) -> npt.NDArray[np.float16]:
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is found where all infinite values are
        return values.astype(np.float16)


def _to_bf16(values: Vector) -> npt.NDArray[np.uint16]:
    """Return the upper halves of the bits, rounded to the nearest, ties to even; NaN stays NaN."""
    bits = values.view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(values), np.uint32(0x7FC0), rounded).astype(np.uint16)

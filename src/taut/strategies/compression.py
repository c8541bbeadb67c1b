"""Compressors: a small message that says the most of a vector. For methods that keep public copies (choco.py).

Both keep the share ``density`` of the elements, those of the largest magnitude. What is not said stays in the
difference that is compressed next time, so a compressor need only be a contraction:

    |C(v) - v|^2  <=  (1 - delta) |v|^2,     delta > 0

    TopK      the elements themselves                  delta >= density                  8 bytes each
    TopSigns  their signs, times their mean magnitude  delta >= density |u|_1^2 / (k |u|_2^2)   4 bytes each

(u: the k elements that are kept).

Messages are checked byte by byte before anything is applied. All numbers are little-endian.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from taut.errors import MalformedMessage, Misuse

if TYPE_CHECKING:
    import numpy.typing as npt

    from taut.strategies.method import Vector


LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Compressed:
    """What travels: some numbers for the note, and the payload."""

    numbers: tuple[float, ...]
    payload: bytes


class Compressor(ABC):
    """``density``: the share of the elements that is kept, at least one of them."""

    name: ClassVar[str]

    def __init__(self, density: float) -> None:
        self.density = density

    @abstractmethod
    def compress(self, v: Vector) -> Compressed:
        """C(v), written down."""

    @abstractmethod
    def check(self, message: Compressed, size: int) -> None:
        """``MalformedMessage`` unless it is one for a vector of ``size`` elements."""

    @abstractmethod
    def add(self, message: Compressed, x: Vector) -> None:
        """x += C(v), in place; the same bits at everybody who has the same x."""

    def kept(self, v: Vector) -> npt.NDArray[np.int64]:
        """The rising indices of the elements that are kept."""
        count = max(1, math.ceil(self.density * v.size))
        if count >= v.size:
            return np.arange(v.size)
        return np.sort(np.argpartition(np.abs(v), v.size - count)[v.size - count :])


class TopK(Compressor):
    """The largest elements: rising indices, then float32 values.

    >>> v = np.array([0.1, -3.0, 0.2, 1.0], np.float32)
    >>> x, codec = np.zeros(4, np.float32), TopK(0.5)
    >>> codec.add(codec.compress(v), x); x.tolist()
    [0.0, -3.0, 0.0, 1.0]
    """

    name: ClassVar[str] = "top-k"

    def compress(self, v: Vector) -> Compressed:
        indices = self.kept(v)
        return Compressed((), indices.astype(index_type(v.size)).tobytes() + v[indices].tobytes())

    def check(self, message: Compressed, size: int) -> None:
        indices, values = self._read(message, size)
        check_indices(indices, size)
        if message.numbers or not np.isfinite(values).all():
            raise MalformedMessage("a top-k message with a number that does not belong there")

    def add(self, message: Compressed, x: Vector) -> None:
        indices, values = self._read(message, x.size)
        x[indices] += values

    def _read(self, message: Compressed, size: int) -> tuple[npt.NDArray[Any], Vector]:
        index = np.dtype(index_type(size))
        count, rest = divmod(len(message.payload), index.itemsize + 4)
        if rest or count > size:
            raise MalformedMessage(f"a top-k message of {len(message.payload)} bytes for {size} elements")
        indices = np.frombuffer(message.payload, index, count)
        return indices, np.frombuffer(message.payload, np.float32, count, indices.nbytes)


class TopSigns(Compressor):
    """The signs of the largest elements, each worth +-tau: ``index << 1 | sign``, and tau, their mean magnitude.

    >>> v = np.array([0.1, -3.0, 0.2, 1.0], np.float32)
    >>> x, codec = np.zeros(4, np.float32), TopSigns(0.5)
    >>> codec.add(codec.compress(v), x); x.tolist()
    [0.0, -2.0, 0.0, 2.0]
    """

    name: ClassVar[str] = "signs"

    def compress(self, v: Vector) -> Compressed:
        indices = self.kept(v)
        tau = float(np.abs(v[indices]).mean(dtype=np.float64).astype(np.float32))  # float32: what receivers add
        words = indices << 1 | (v[indices] < 0)
        return Compressed((tau,), words.astype(index_type(2 * v.size)).tobytes())

    def check(self, message: Compressed, size: int) -> None:
        check_indices(self._words(message, size) >> 1, size)
        if len(message.numbers) != 1 or not 0.0 <= message.numbers[0] <= LARGEST:
            raise MalformedMessage(f"signs worth {message.numbers}; one float32 from 0 was expected")

    def add(self, message: Compressed, x: Vector) -> None:
        words = self._words(message, x.size)
        tau = np.float32(message.numbers[0])
        x[words >> 1] += np.where(words & 1, -tau, tau)

    def _words(self, message: Compressed, size: int) -> npt.NDArray[Any]:
        index = np.dtype(index_type(2 * size))
        if len(message.payload) % index.itemsize or len(message.payload) > index.itemsize * size:
            raise MalformedMessage(f"a message of signs of {len(message.payload)} bytes for {size} elements")
        return np.frombuffer(message.payload, index)


COMPRESSORS: dict[str, type[Compressor]] = {one.name: one for one in (TopK, TopSigns)}


def compressor(name: str, density: float) -> Compressor:
    """The compressor of that name.

    >>> compressor("signs", 0.01).density
    0.01
    """
    if name not in COMPRESSORS:
        raise Misuse(f"compressor {name!r}", f"one of {', '.join(COMPRESSORS)}")
    return COMPRESSORS[name](density)


def index_type(numbers: int) -> type[np.unsignedinteger[Any]]:
    """The smallest type for so many different numbers."""
    return np.uint32 if numbers <= 2**32 else np.uint64


def check_indices(indices: npt.NDArray[Any], size: int) -> None:
    if indices.size and (int(indices[-1]) >= size or not (indices[1:] > indices[:-1]).all()):
        raise MalformedMessage(f"indices that do not rise, or leave a vector of {size} elements")

"""The grid that makes sums exact: every weight a whole multiple of a power of two, with room to grow.

Tensor t gets q_t = bound_t * 2^-24, where bound_t is the power of two at or above max(8, 32 * max|w_t|). A
float32 holds every multiple of q_t up to bound_t exactly, so adding and subtracting multiples of q_t there
never rounds, and the order of arrival cannot matter. A quantum is good for the whole vector if it is a
multiple of every q_t.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.errors import Misuse

BITS = 24  # of a float32's significand
LEAST_BOUND = 8.0
ROOM = 32.0  # how many times its first largest value a weight may grow


@dataclass(frozen=True)
class Grid:
    """``sizes``: elements per tensor, in order; ``exponents``: q_t = 2**exponent, per tensor; ``names``: for messages."""

    sizes: tuple[int, ...]
    exponents: tuple[int, ...]
    names: tuple[str, ...] = ()

    @property
    def finest(self) -> float:
        """Return the finest quantum that is exact for every tensor: the coarsest of the q_t.

        >>> Grid((3, 5), (-21, -19)).finest == 2.0**-19
        True
        """
        return math.ldexp(1.0, max(self.exponents, default=LEAST_EXPONENT))

    def check(self, quantum: float, what: str = "tau") -> None:
        """Raise ``Misuse``, naming the tensor, if ``quantum`` is no multiple of a tensor's grid."""
        for index, (size, exponent) in enumerate(zip(self.sizes, self.exponents, strict=True)):
            steps = math.ldexp(quantum, -exponent)
            if steps < 1.0 or steps != math.floor(steps):
                name = f"{self.names[index]!r} " if self.names else ""
                raise Misuse(
                    f"{what} with updates of {quantum:g}",
                    f"updates in multiples of 2^{exponent} for tensor {index} {name}of {size} elements, "
                    "whose large weights leave no room for finer exact sums",
                    f"take a larger {what}, at least 2^{max(self.exponents) + 2}, or leave it to density",
                )

    def exceeded(self, b: Any) -> list[int]:
        """Return the tensors of which some element left the exact range: there, sums may round and replicas may
        differ."""
        found = []
        for index, (lo, hi) in enumerate(self._ranges()):
            if hi > lo and not _largest(b[lo:hi]) <= math.ldexp(1.0, self.exponents[index] + BITS):
                found.append(index)
        return found

    def take(self, b: Any, w: Any) -> None:
        """Move ``b`` to ``w``, rounded to the grid. Elements of ``w`` that are NaN or infinite leave ``b`` as it is.

        >>> grid, b, w = Grid((2,), (-1,)), np.zeros(2, np.float32), np.array([0.8, np.nan], np.float32)
        >>> grid.take(b, w); b.tolist()
        [1.0, 0.0]
        """
        for (lo, hi), exponent in zip(self._ranges(), self.exponents, strict=True):
            if hi > lo:
                take_finite(b[lo:hi], w[lo:hi])
                _round(b[lo:hi], exponent)

    def pack(self) -> dict[str, list[int]]:
        """Return the grid as plain lists, for a message or a file; ``Grid.unpack`` takes them back."""
        return {"sizes": list(self.sizes), "exponents": list(self.exponents)}

    @staticmethod
    def unpack(given: Mapping[str, Sequence[int]], names: Sequence[str] = ()) -> Grid:
        """Return the grid that ``pack`` wrote. A newcomer takes the founder's: one made from later weights may be
        finer."""
        return Grid(tuple(given["sizes"]), tuple(given["exponents"]), tuple(names))

    def _ranges(self) -> Iterator[tuple[int, int]]:
        lo = 0
        for size in self.sizes:
            yield lo, lo + size
            lo += size


LEAST_EXPONENT = int(math.log2(LEAST_BOUND)) - BITS


def snap(w: Any, sizes: Sequence[int], names: Sequence[str] = (), kept: Mapping[str, int] | None = None) -> Grid:
    """Round ``w`` (float32, a NumPy array or a torch tensor) in place, tensor by tensor, to its grid; return the grid.

    ``sizes``: elements of each tensor, in order; they must sum to the length of ``w``. ``kept``: exponents, by name, of
    tensors that keep their grid: they are left as they are.

    >>> w = np.array([0.1, -3.0], np.float32)
    >>> snap(w, [2]).exponents, float(w[0]) * 2**17 % 1
    ((-17,), 0.0)
    """
    if sum(sizes) != len(w):
        raise Misuse(f"tensors of {sum(sizes)} elements", f"{len(w)}, the length of the weights")
    exponents, lo = [], 0
    for index, size in enumerate(sizes):
        part = w[lo : lo + size]
        known = kept.get(names[index]) if kept else None
        if known is not None:
            exponents.append(known)
            lo += size
            continue
        largest = _largest(part) if size else 0.0
        if not math.isfinite(largest):
            name = names[index] if names else f"number {index}"
            raise Misuse(f"tensor {name} with NaN or infinite weights", "finite weights", "look at its initialization")
        exponent = _exponent(largest)
        if size:
            _round(part, exponent)
        exponents.append(exponent)
        lo += size
    return Grid(tuple(sizes), tuple(exponents), tuple(names))


def take_finite(b: Any, w: Any) -> None:
    """Copy the elements of ``w`` to ``b`` that are neither NaN nor infinite."""
    if math.isfinite(_largest(w)):
        b[:] = w
    else:
        finite = abs(w) < math.inf
        b[finite] = w[finite]


def _exponent(largest: float) -> int:
    mantissa, exponent = math.frexp(max(LEAST_BOUND, ROOM * largest))
    bound = exponent - 1 if mantissa == 0.5 else exponent  # the power of two at or above
    return min(bound, 127) - BITS


def _largest(part: Any) -> float:
    """Return max|x|, NaN if there is one, without a copy of the tensor."""
    return float(np.maximum(float(part.max()), -float(part.min())))


def _round(part: Any, exponent: int) -> None:
    """Round to multiples of 2**exponent. Scaling by a power of two is exact, so only the rounding rounds (half to even,
    in NumPy and in torch)."""
    part *= math.ldexp(1.0, -exponent)
    if isinstance(part, np.ndarray):
        np.rint(part, out=part)
    else:
        part.round_()
    part *= math.ldexp(1.0, exponent)
    part += 0.0  # -0.0 becomes 0.0: a sum never gives it, and hashes see the difference

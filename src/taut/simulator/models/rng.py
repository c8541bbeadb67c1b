"""Random numbers that are the same on every machine and in every version of Python: seed and names decide."""

from __future__ import annotations

import hashlib

from taut.core.splitmix import MASK, STRIDE, splitmix64
from taut.simulator.models.portable_math import exponential_quantile, normal_quantile


class Rng:
    """A stream of random numbers for each seed and names. Position n of it is SplitMix64's output n
    (``core/splitmix.py``):

        splitmix64(key + n * stride),  key = the first 64 bits of BLAKE2b(seed, names)

    so that ``at(n)`` needs no draws before it, and the draws of one worker change nothing for another.

    >>> rng = Rng(7, "speed", 3)
    >>> rng.random() == Rng(7, "speed", 3).at(0), rng.random() == Rng(7, "speed", 4).at(1)
    (True, False)
    """

    __slots__ = ("_state", "key")

    def __init__(self, seed: int, *names: str | int) -> None:
        written = repr((int(seed), *(name if isinstance(name, str) else int(name) for name in names)))
        self.key = int.from_bytes(hashlib.blake2b(written.encode(), digest_size=8).digest(), "big")
        self._state = self.key

    def bits(self) -> int:
        state = self._state
        self._state = (state + STRIDE) & MASK
        return splitmix64(state)

    def random(self) -> float:
        """Return a number uniform in [0, 1)."""
        return (self.bits() >> 11) * 2.0**-53

    def at(self, position: int) -> float:
        """Return draw number ``position`` of this stream, from 0, whatever was drawn so far; uniform in [0, 1)."""
        return (splitmix64(self.key + position * STRIDE) >> 11) * 2.0**-53

    def normal(self) -> float:
        """Return a number with mean 0 and variance 1; by inversion, so that one draw is one position."""
        return normal_quantile(self.random() or 2.0**-54)

    def exponential(self) -> float:
        """Return a number of the exponential distribution with mean 1."""
        return exponential_quantile(self.random())

    def randrange(self, n: int) -> int:
        """Return a whole number from 0 up to, not including, ``n``, each equally likely to within ``n`` / 2^64."""
        if n < 1:
            raise ValueError(f"randrange({n})")
        return (self.bits() * n) >> 64

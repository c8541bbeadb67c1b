"""Random numbers that are the same on every machine and in every version of Python: the seed and the names decide
them.
"""

from __future__ import annotations

import hashlib

from taut.simulator.models.portable_math import exponential_quantile, normal_quantile

_MASK = (1 << 64) - 1
_STRIDE = 0x9E3779B97F4A7C15  # odd, so that 2^64 positions are all different


class Rng:
    """A stream of random numbers for each seed and names. Position n of it is SplitMix64's output n (Steele, Lea,
    Flood, 2014):

        mix(key + (n + 1) * stride),  key = the first 64 bits of BLAKE2b(seed, names)

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
        """Return 64 random bits, as a whole number."""
        self._state = z = (self._state + _STRIDE) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def random(self) -> float:
        """Return a uniform draw from [0, 1)."""
        self._state = z = (self._state + _STRIDE) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((z ^ (z >> 31)) >> 11) * 2.0**-53

    def at(self, position: int) -> float:
        """Return draw number ``position`` of this stream, from 0, uniform in [0, 1), whatever was drawn so far."""
        z = (self.key + (position + 1) * _STRIDE) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((z ^ (z >> 31)) >> 11) * 2.0**-53

    def normal(self) -> float:
        """Return a draw of mean 0 and variance 1; by inversion, so that one draw is one position."""
        return normal_quantile(self.random() or 2.0**-54)

    def exponential(self) -> float:
        """Return an exponential draw of mean 1."""
        return exponential_quantile(self.random())

    def randrange(self, n: int) -> int:
        """Return a whole number from 0 up to, not including, ``n``, each as likely as the others to within ``n`` /
        2^64."""
        if n < 1:
            raise ValueError(f"randrange({n})")
        return (self.bits() * n) >> 64

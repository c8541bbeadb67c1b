"""Numbers that look random and are the same on every machine, in every version of every library.

Python's and numpy's generators may change their streams between versions, and workers need not have the same version.
SplitMix64 is a few lines: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
"""

from __future__ import annotations

MASK = (1 << 64) - 1
STRIDE = 0x9E3779B97F4A7C15  # odd, so that 2^64 states in a row are all different
MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_FIRST, _SECOND = MULTIPLIERS


def splitmix64(state: int) -> int:
    """Return the output of SplitMix64 in this state: 64 well-mixed bits. The next state is ``state + STRIDE``."""
    z = (state + STRIDE) & MASK
    z = ((z ^ (z >> 30)) * _FIRST) & MASK
    z = ((z ^ (z >> 27)) * _SECOND) & MASK
    return z ^ (z >> 31)


def hash_bits(*key: int) -> int:
    """Return 64 well-mixed bits of some whole numbers, whose order counts.

    >>> hash_bits(0, 1) == hash_bits(0, 1), hash_bits(0, 1) == hash_bits(1, 0)
    (True, False)
    """
    state = 0
    for number in key:
        state = splitmix64(state + number)
    return state


def hash_unit(*key: int) -> float:
    """Return the same as a number from 0 up to, not including, 1.

    >>> 0.0 <= hash_unit(3, 4) < 1.0
    True
    """
    return (hash_bits(*key) >> 11) / (1 << 53)

"""Numbers that look random and are the same on every machine, in every version of every library."""

from __future__ import annotations

_MASK = (1 << 64) - 1


def roll(*key: int) -> int:
    """64 well-mixed bits of some whole numbers: the finisher of SplitMix64, once per number (Steele, Lea, Flood, 2014).

    Python's and numpy's generators may change their streams between versions; workers need not have the same.

    >>> roll(0, 1) == roll(0, 1), roll(0, 1) == roll(1, 0)
    (True, False)
    """
    state = 0
    for number in key:
        state = (state + (number & _MASK) + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def chance(*key: int) -> float:
    """The same as a number from 0 up to, not including, 1.

    >>> 0.0 <= chance(3, 4) < 1.0
    True
    """
    return (roll(*key) >> 11) / (1 << 53)

"""How much of the weights is scanned after one step: all or, if that would take too long, a fragment in turn."""

from __future__ import annotations

MAX_FRAGMENTS = 8
ENCODE_SHARE = 0.02  # of the step's time; beyond it, only a fragment is scanned at each step
FRAGMENT_ELEMENTS = 1 << 23  # at most, so that no payload outgrows a message
BLOCK = 64  # fragments begin at multiples of it


def least_fragments(size: int) -> int:
    return max(1, -(-size // FRAGMENT_ELEMENTS))


def fragments(encode_s: float, size: int, step_s: float) -> int:
    """Return a power of two: so many fragments that encoding, ``encode_s`` for the whole, keeps its share of a step.

    >>> fragments(0.001, 1000, 0.1), fragments(0.005, 1000, 0.1), fragments(1.0, 1000, 0.1), fragments(0.0, 1 << 27, 0.1)
    (1, 4, 8, 16)
    """
    least = least_fragments(size)
    wanted, found = encode_s / (ENCODE_SHARE * step_s), 1
    while found < min(wanted, max(MAX_FRAGMENTS, least)):
        found *= 2
    return max(least, found)


def fragment(turn: int, fragments: int, size: int) -> tuple[int, int]:
    """Return the start and the end of a fragment.

    >>> fragment(0, 2, 200), fragment(1, 2, 200)
    ((0, 128), (128, 200))
    """
    blocks = -(-size // BLOCK)
    lo, hi = (BLOCK * (blocks * part // fragments) for part in (turn, turn + 1))
    return lo, min(hi, size)

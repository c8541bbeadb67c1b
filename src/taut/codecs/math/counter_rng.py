"""Random numbers that follow from (seed, turn, element) alone, so that a codec gives the same bytes when it is run again,
on any device, whole or piece by piece.

    u_i = hash(lo + i; keys of seed and turn) >> 8, times 2^-24              in [0, 1), 24 bits

The hash is three rounds of multiplying and folding a 32-bit counter (constants of Wellons' "triple32"), the second key
added in the middle; the keys are splitmix64 of seed, turn and the counter's upper half. It costs a few operations on
32-bit numbers, vectorizes, and needs no state. For rounding, not for secrets.

Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3" (numbers from a counter); Steele et al. 2014, "Fast
splittable pseudorandom number generators" (splitmix64); Wellons 2018, "Prospecting for hash functions".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from taut.codecs.math.arrays import empty
from taut.core.splitmix import MASK, splitmix64

Vector = Any
_WORD = 1 << 32
MULTIPLIERS = (0xED5AD4BB, 0xAC4C1B51, 0x31848BAB)


def uniform(seed: int, turn: int, lo: int, like: Vector) -> Vector:
    """Return a float32 in [0, 1) for each of the elements ``lo..lo+len(like)-1``, on the device of ``like``, whose values
    are not read.

    >>> whole = uniform(7, 0, 0, np.zeros(6, np.float32))
    >>> bool((uniform(7, 0, 2, whole[2:]) == whole[2:]).all()), bool((uniform(7, 1, 0, whole) == whole).any())
    (True, False)
    """
    if isinstance(like, np.ndarray):
        from taut.codecs.kernels.cpu.kernels import fill_uniform as fill
    else:
        fill = _fill_torch  # type: ignore[assignment]
    values = empty(len(like), like)
    for start, stop, counter, keys in stretches(seed, turn, lo, len(like)):
        fill(values[start:stop], counter, *keys)
    return values


def stretches(seed: int, turn: int, lo: int, count: int) -> Iterator[tuple[int, int, int, tuple[int, int]]]:
    """Yield (start, stop, first 32-bit counter, keys) of stretches whose counters share their upper half: nearly always
    one.

    >>> [(start, stop, counter) for start, stop, counter, _ in stretches(0, 0, 2**32 - 2, 5)]
    [(0, 2, 4294967294), (2, 5, 0)]
    """
    start = 0
    while start < count:
        upper, counter = divmod(lo + start, _WORD)
        stop = min(count, start + _WORD - counter)
        yield start, stop, counter, _keys(seed, turn, upper)
        start = stop


def _keys(seed: int, turn: int, upper: int) -> tuple[int, int]:
    mixed = 0
    for number in (seed, turn, upper):
        mixed = splitmix64(mixed ^ (number & MASK))
    return mixed % _WORD, mixed // _WORD


def _fill_torch(values: Any, counter: int, key: int, other: int) -> None:
    """Fill ``values`` as ``kernels.cpu.kernels.fill_uniform`` does: 32-bit numbers, which wrap. torch has signed ones
    only, so shifted-in signs are masked off."""
    import torch

    first, second, third = (_signed(number) for number in MULTIPLIERS)
    x = torch.arange(len(values), dtype=torch.int64, device=values.device).add_(counter).to(torch.int32)
    x ^= _signed(key)
    x ^= (x >> 17) & 0x7FFF
    x *= first
    x ^= (x >> 11) & 0x1FFFFF
    x += _signed(other)
    x *= second
    x ^= (x >> 15) & 0x1FFFF
    x *= third
    x ^= (x >> 14) & 0x3FFFF
    values.copy_((x >> 8) & 0xFFFFFF)
    values *= 2.0**-24


def _signed(number: int) -> int:
    return number - _WORD if number >= _WORD // 2 else number

"""Stochastic rounding of float32 to bfloat16 or float16: up or down by chance, so that the mean is the value itself.

    ulp(x) = 2^(floor(log2 |x|) - digits + 1)        q(x) = ulp floor(x / ulp + u),   u in [0, 1)

The chance u is a hash of x's own bits, the element's index and the seed. So whoever has the same x and seed rounds to the
same bits, at any time and on any device, and no state is kept; a weight that moved rounds by a fresh u.

Gupta et al. 2015, "Deep learning with limited numerical precision".
"""

from __future__ import annotations

import torch

from taut.core.splitmix import splitmix64

DIGITS = {torch.bfloat16: 8, torch.float16: 11}  # of the significand, with the implicit one
LEAST_ULP = {torch.bfloat16: 2.0**-126, torch.float16: 2.0**-24}  # bfloat16 has finer ones, which are float32 subnormals
PIECE = 1 << 22  # elements that are rounded at once: a few temporary vectors of it are all the memory
_EXPONENT = 0x7F800000


def round_stochastically(values: torch.Tensor, target: torch.Tensor, seed: int, first: int = 0) -> None:
    """Write ``values``, flat and float32, into ``target``, of half precision; ``first``: the index of the first element.

    >>> target = torch.zeros(10_000, dtype=torch.bfloat16)
    >>> round_stochastically(torch.full((10_000,), 1.001), target, seed=7)
    >>> target.unique().tolist(), round(target.float().mean().item(), 3)
    ([1.0, 1.0078125], 1.001)
    """
    digits, least = DIGITS[target.dtype], LEAST_ULP[target.dtype]
    key = splitmix64(seed) & 0x7FFFFFFF
    for lo in range(0, len(values), PIECE):
        x = values[lo : lo + PIECE]
        bits = x.view(torch.int32)
        ulp = (bits & _EXPONENT).view(torch.float32).mul_(2.0 ** (1 - digits)).clamp_(min=least)
        chance = _hashed(bits, first + lo, key).bitwise_and_((1 << (24 - digits)) - 1)  # x / ulp + u is exact
        u = chance.to(torch.float32).mul_(2.0 ** (digits - 24))
        target[lo : lo + PIECE].copy_((x / ulp).add_(u).floor_().mul_(ulp))


def _hashed(bits: torch.Tensor, first: int, key: int) -> torch.Tensor:
    """Return 32 mixed bits for each element: two rounds of multiplying and folding, of 32-bit numbers, which wrap."""
    index = torch.arange(first, first + len(bits), dtype=torch.int64, device=bits.device)
    x = index.mul_(0x9E3779B1).add_(key).to(torch.int32).bitwise_xor_(bits)
    x ^= (x >> 16) & 0xFFFF
    x *= 0x21F0AAAD
    x ^= (x >> 15) & 0x1FFFF
    x *= 0x735A2D97
    x ^= (x >> 15) & 0x1FFFF
    return x

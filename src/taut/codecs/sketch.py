"""A count sketch: a few hundred numbers per replica, from which the distance between two replicas can be
estimated.

Element i is added, with a random sign, to one of the buckets. Sketches are linear, so the squared distance of
two sketches (same seed) estimates that of the vectors: unbiased, relative standard deviation about sqrt(2 /
buckets), 9% for 256.

Signs and buckets come from one hash per block of 64 elements: its bits are the signs, and element j of the
block goes to bucket (start + j) modulo the number of buckets. Two elements of a block never meet, those of
two blocks meet at random.

Charikar, Chen, Farach-Colton, "Finding frequent items in data streams", 2002.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from taut.codecs.kernels import cpu
from taut.core.splitmix import MULTIPLIERS, STRIDE
from taut.errors import Misuse

_MIX = (STRIDE, *MULTIPLIERS)
PIECE = 1 << 16  # blocks
FEW = 1 << 22  # elements: torch takes 0.1 s for them, less than it takes to load the kernel


def sketch(w: Any, seed: int = 0, buckets: int = 256) -> list[float]:
    """Return the sketch of a float32 vector (a NumPy array or a torch tensor), made in one pass. ``buckets``: a power of
    two, 64 to 1024.

    >>> a, b = np.zeros(1000, np.float32), np.ones(1000, np.float32)
    >>> 700 < squared_distance(sketch(a), sketch(b)) < 1300
    True
    """
    if buckets not in (64, 128, 256, 512, 1024):
        raise Misuse(f"{buckets} buckets", "64, 128, 256, 512 or 1024")
    if isinstance(w, np.ndarray) and len(w) < FEW and "torch" in sys.modules and not _kernel_is_loaded():
        import torch

        w = torch.from_numpy(w.copy())  # it may be read-only
    if isinstance(w, np.ndarray):
        sums = np.zeros(buckets + 64, np.float64)
        cpu.kernels.add_to_sketch(w, np.uint64(seed), sums)
        sums[:64] += sums[buckets:]  # a block that began near the end wraps around
        return [float(number) for number in sums[:buckets]]
    return _sketch_torch(w, seed, buckets)


def _kernel_is_loaded() -> bool:
    """Return whether the kernel is ready. To import the kernels and load the first of them takes 0.6 s of CPU, and a run
    without a codec needs no other."""
    return f"{cpu.__name__}.kernels" in sys.modules and cpu.kernels.add_to_sketch.loaded


def squared_distance(one: Sequence[float], other: Sequence[float]) -> float:
    """Estimate |v - w|^2 from the sketches of v and w, made with the same seed and number of buckets."""
    if len(one) != len(other):
        raise Misuse(f"sketches of {len(one)} and {len(other)} buckets", "sketches of one kind")
    return float(sum((x - y) ** 2 for x, y in zip(one, other, strict=True)))


def _signed(number: int) -> int:
    """Return an unsigned 64-bit number as torch's int64 holds it."""
    return number - 2**64 if number >= 2**63 else number


def _sketch_torch(w: Any, seed: int, buckets: int) -> list[float]:
    """Return the same numbers up to rounding, for a tensor on any device."""
    import torch

    def right(x: Any, by: int) -> Any:  # a logical shift: torch's is arithmetic
        return (x >> by) & ((1 << (64 - by)) - 1)

    sums = torch.zeros(buckets, dtype=torch.float64, device=w.device)
    lanes = torch.arange(64, device=w.device)
    blocks = (len(w) + 63) // 64
    for first in range(0, blocks, PIECE):
        last = min(first + PIECE, blocks)
        part = w[first * 64 : min(last * 64, len(w))]
        part = torch.nn.functional.pad(part, (0, (last - first) * 64 - len(part))).reshape(-1, 64)
        z = torch.arange(first + 1, last + 1, device=w.device) * _signed(_MIX[0]) + _signed(seed)
        z = (z ^ right(z, 30)) * _signed(_MIX[1])
        z = (z ^ right(z, 27)) * _signed(_MIX[2])
        z = z ^ right(z, 31)
        signs = 1 - 2 * ((z[:, None] >> lanes) & 1)
        indices = (right(z * _signed(_MIX[0]), 40)[:, None] + lanes) % buckets
        sums.index_add_(0, indices.reshape(-1), (part * signs).reshape(-1).double())
    return [float(number) for number in sums.cpu()]

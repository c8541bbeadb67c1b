"""The k elements of the largest magnitude, without sorting the vector.

A float's bits, read as a whole number, rise with its magnitude. A sample says which magnitude somewhat more than k
elements will have; one pass collects those, and among them the k largest are found exactly: a histogram of the upper 16
bits says in which bucket the k-th is, one of the lower 15 in that bucket which number it is. Of equal ones the first are
taken. Where the sample was wrong, or much is wanted, the histograms are of all elements. The result is the same in all
cases, and the same for NumPy and torch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from taut.codecs.kernels import cpu

Vector = Any

SAMPLE = 1 << 16  # elements of the sample
MUCH = 20  # from one element in 20 on, collecting them first would not pay
LOW = 15  # bits of a magnitude below the 16 that the first histogram counts
SELECTION_KERNELS = tuple(f"selection.{name}" for name in ("_count_lower", "_count_upper", "_edge_bucket", "_take"))
_MASK = 0x7FFFFFFF


def largest(v: Vector, k: int) -> tuple[Vector, Vector]:
    """Return the rising indices (int64) and values of the ``k`` largest |v|, without zeros; of equal ones the first.

    >>> indices, values = largest(np.array([1.0, -3.0, 0.0, 2.0, -2.0], np.float32), 2)
    >>> indices.tolist(), values.tolist()
    ([1, 3], [-3.0, 2.0])
    """
    indices = _largest_numpy(v, k) if isinstance(v, np.ndarray) else _largest_torch(v, k)
    return indices, v[indices]


def sample_rank(size: int, k: int, sampled: int) -> int:
    """Return how many of a sample are above a magnitude that at least ``k`` of all elements have, four standard
    deviations to the safe side.

    >>> sample_rank(25_000_000, 25_000, 65536)
    99
    """
    expected = k / size * sampled
    return math.ceil(expected + 4.0 * math.sqrt(expected)) + 1


def _largest_numpy(v: Any, k: int) -> Any:
    bits = np.ascontiguousarray(v).view(np.int32)
    if len(v) > 4 * SAMPLE and k * MUCH < len(v):
        sample = bits[:: len(v) // SAMPLE] & np.int32(_MASK)
        rank = sample_rank(len(v), k, len(sample))
        least = max(1, int(np.partition(sample, len(sample) - rank)[len(sample) - rank]))
        indices = cpu.selection.at_least(bits, least, k + k // 4 + len(v) // 64)
        if indices is not None and (len(indices) >= k or least == 1):
            return indices[cpu.selection.largest(bits[indices], k)]
    return cpu.selection.largest(bits, k)


def _largest_torch(v: Any, k: int) -> Any:
    import torch

    bits = v.view(torch.int32) & _MASK
    if len(v) > 4 * SAMPLE and k * MUCH < len(v):
        sample = bits[:: len(v) // SAMPLE]
        least = sample.topk(sample_rank(len(v), k, len(sample))).values[-1].clamp(min=1)
        indices = torch.nonzero(bits >= least).view(-1)
        if len(indices) >= k:
            return indices[_select_torch(bits[indices], k)]
    return _select_torch(bits, k)


def _select_torch(bits: Any, k: int) -> Any:
    """Select as ``kernels.cpu.selection.largest``. (``torch.topk`` takes any of equal ones, and is slow where k is
    large.)"""
    import torch

    upper, wanted = _bucket_torch(torch.bincount(bits >> LOW, minlength=1 << 16), k)
    within = bits[(bits >> LOW) == upper] & ((1 << LOW) - 1)
    lower, wanted = _bucket_torch(torch.bincount(within, minlength=1 << LOW), wanted)
    edge = upper << LOW | lower
    keep = bits > edge
    if edge:  # zeros are not sent
        keep[torch.nonzero(bits == edge).view(-1)[:wanted]] = True
    return torch.nonzero(keep).view(-1)


def _bucket_torch(counts: Any, k: int) -> tuple[int, int]:
    """Return the bucket that holds the k-th from above, and how many of it are wanted; bucket 0 if there are fewer."""
    reach = counts.flip(0).cumsum(0).flip(0)  # how many are in a bucket or above it
    bucket = max(0, int((reach >= k).sum()) - 1)
    return bucket, k - int(reach[bucket] - counts[bucket])

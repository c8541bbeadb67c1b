"""Merging several workers' vectors so that a few wrong ones move the result little, whatever they hold.

    median      coordinate by coordinate: the middle one
    trimmed     coordinate by coordinate: the mean without the k smallest and the k largest
    clip        x + sum_j W_j min(1, c / |x_j - x|) (x_j - x)        c: the median of |x_j - x|

For a mean that is to be the same everywhere (``merge``), x is the coordinate-wise median of all and W_j is 1 / p.

With fewer than half of the vectors wrong (``median``), or no more than k (``trimmed``), each coordinate of the result
lies between honest ones. ``clip`` keeps the mixing weights of the graph: nobody moves x by more than its weight times
what is usual among its neighbours. None of them conserves the mean of all workers, as plain mixing does.

Papers: Yin et al. 2018, "Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates" (median, trimmed
mean); Karimireddy et al. 2021, "Learning from History for Byzantine Robust Optimization" (centred clipping); He et al.
2022, "Byzantine-Robust Decentralized Learning via ClippedGossip" (the same between neighbours).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from taut.errors import Misuse
from taut.specs import check_choice
from taut.strategies.api import Vector

KINDS = ("none", "median", "trimmed", "clip")
TRIM = 0.2  # of the vectors, at each end; at least one of three or more
CHUNK = 1 << 16  # coordinates at a time: sorting needs a copy, and this much of it stays in the cache


def check_robust(method: Any, known: Sequence[str] = KINDS, schedule: str = "ring") -> None:
    """Raise ``Misuse`` for a method whose ``robust`` is none of ``known``, or comes with a schedule of an all-reduce."""
    check_choice(method, "robust", known)
    if method.robust != "none" and schedule != "ring":
        given = f"{method.name}: schedule={schedule} with robust={method.robust}"
        raise Misuse(given, "one of them", "drop schedule")


def trimmed_count(vectors: int, share: float = TRIM) -> int:
    """Return how many are left out at each end.

    >>> [trimmed_count(n) for n in (1, 2, 3, 5, 10)]
    [0, 0, 1, 1, 2]
    """
    return min((vectors - 1) // 2, max(int(share * vectors), 1)) if vectors > 2 else 0


def median(vectors: Sequence[Vector], out: Vector) -> None:
    """Write the coordinate-wise median (or the mean of the two in the middle) to ``out``, even if that is one of them.

    >>> x = np.zeros(2, np.float32)
    >>> median([np.float32([1, 5]), np.float32([2, 6]), np.float32([1e30, -1e30])], x); x.tolist()
    [2.0, 5.0]
    """
    low, high = (len(vectors) - 1) // 2, len(vectors) // 2
    for lo in range(0, len(out), CHUNK):
        part = np.stack([vector[lo : lo + CHUNK] for vector in vectors])
        part.partition((low, high), axis=0)
        # Half of each, so that the sum of two large ones does not overflow; the smallest have no half, hence clip.
        half = np.float32(0.5)
        out[lo : lo + CHUNK] = np.clip(half * part[low] + half * part[high], part[low], part[high])


def trimmed(vectors: Sequence[Vector], out: Vector, share: float = TRIM) -> None:
    """Write the coordinate-wise mean of those in the middle to ``out``; ``share`` of them is left out at each end.

    >>> x = np.zeros(1, np.float32)
    >>> trimmed([np.float32([value]) for value in (1, 2, 3, 4, 1e30)], x); x.tolist()
    [3.0]
    """
    count = len(vectors)
    cut = trimmed_count(count, share)
    for lo in range(0, len(out), CHUNK):
        part = np.stack([vector[lo : lo + CHUNK] for vector in vectors])
        part.sort(axis=0)
        kept = part[cut : count - cut]
        mean = kept.mean(axis=0, dtype=np.float64).astype(np.float32)
        out[lo : lo + CHUNK] = np.clip(mean, kept[0], kept[-1])  # rounding must not lead out of their range


def clip(x: Vector, theirs: Mapping[int, Vector], weights: Mapping[int, float]) -> None:
    """Move ``x``, in place, towards ``theirs`` by their ``weights``, none further than the median of the distances.

    >>> x = np.zeros(1, np.float32)
    >>> clip(x, {1: np.float32([1]), 2: np.float32([2]), 3: np.float32([900])}, {1: 0.25, 2: 0.25, 3: 0.25}); x.tolist()
    [1.25]
    """
    distances = {other: _distance(vector, x) for other, vector in theirs.items()}
    if not distances:
        return
    # The lower one of an even number: were it the mean of two, one neighbour of two could set it at will.
    limit = sorted(distances.values())[(len(distances) - 1) // 2]
    move = np.zeros(len(x), np.float64)
    for other, vector in sorted(theirs.items()):
        move += weights[other] * clip_share(distances[other], limit) * (vector.astype(np.float64) - x)
    x += move.astype(np.float32)


def clipped(vectors: Sequence[Vector], out: Vector) -> None:
    """Write the mean about the coordinate-wise median to ``out``, to which none counts for more than is usual (``clip``).

    >>> x = np.zeros(1, np.float32)
    >>> clipped([np.float32([value]) for value in (1, 2, 3, 4, 1e30)], x); x.tolist()
    [3.0]
    """
    median(vectors, out)
    clip(out, dict(enumerate(vectors)), dict.fromkeys(range(len(vectors)), 1.0 / len(vectors)))


def merge(kind: str, vectors: Sequence[Vector], out: Vector) -> None:
    """Write the robust mean of all to ``out``: a function of the vectors and their order alone.

    >>> x = np.zeros(1, np.float32)
    >>> merge("median", [np.float32([value]) for value in (1, 2, 3, 4, 1e30)], x); x.tolist()
    [3.0]
    """
    {"median": median, "trimmed": trimmed, "clip": clipped}[kind](vectors, out)


def clip_share(distance: float, limit: float) -> float:
    """Return min(1, limit / distance)."""
    return 1.0 if distance <= limit else limit / distance


def _distance(vector: Vector, x: Vector) -> float:
    """Return |vector - x| in double precision: what is far away must not become infinitely far."""
    return float(np.linalg.norm(vector.astype(np.float64) - x))

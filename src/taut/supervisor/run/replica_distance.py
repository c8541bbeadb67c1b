"""Distance between replicas, from small linear sketches of their weights."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt


def relative(sketches: Iterable[Sequence[float]]) -> float:
    """Return the ``consensus`` distance relative to the norm of the mean: 0.01 is one percent of the weights.

    >>> relative([[3.0, 4.0], [3.0, 6.0]])
    0.17149858514250882
    """
    rows = _table(sketches)
    norm = float(np.linalg.norm(rows.mean(axis=0))) if len(rows) else 0.0
    distance = _distance(rows)
    return distance / norm if norm > 0.0 and math.isfinite(norm) else distance


def consensus(sketches: Iterable[Sequence[float]]) -> float:
    """Return the root mean square distance of the replicas from their mean, sqrt(mean_i |s_i - mean|^2).

    The sketch is linear and keeps norms on average, so the distance of sketches estimates the distance of weights.
    Sketches of an uncommon length, empty ones and ones that are not finite are left out; fewer than two give 0.

    >>> consensus([[0.0, 0.0], [2.0, 0.0]])
    1.0
    >>> consensus([[1.0, 2.0]])
    0.0
    """
    return _distance(_table(sketches))


def _distance(table: npt.NDArray[np.float64]) -> float:
    if len(table) < 2:
        return 0.0
    # in units of the largest deviation, since squares of very large weights overflow
    away = table - table.mean(axis=0)
    scale = float(np.abs(away).max())
    if scale == 0.0 or not np.isfinite(scale):
        return scale
    return scale * float(np.sqrt(np.mean(np.sum((away / scale) ** 2, axis=1))))


def _table(sketches: Iterable[Sequence[float]]) -> npt.NDArray[np.float64]:
    """Return the comparable sketches as rows."""
    rows = [sketch for sketch in sketches if len(sketch) > 0]
    if not rows:
        return np.empty((0, 0))
    common = Counter(len(row) for row in rows).most_common(1)[0][0]
    table = np.array([row for row in rows if len(row) == common], dtype=np.float64)
    usable: npt.NDArray[np.float64] = table[np.isfinite(table).all(axis=1)]
    return usable

"""The order of the samples in a pass: the same on every worker, from the seed and the number of the pass alone."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def order(length: int, seed: int, epoch: int, shuffle: bool = True) -> npt.NDArray[np.int64]:
    """Return the indices ``0..length-1`` in the order of pass ``epoch``.

    >>> order(5, seed=0, epoch=1).tolist() == order(5, seed=0, epoch=1).tolist()
    True
    >>> sorted(order(5, seed=0, epoch=2).tolist())
    [0, 1, 2, 3, 4]
    """
    if not shuffle:
        return np.arange(length, dtype=np.int64)
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(length).astype(np.int64)

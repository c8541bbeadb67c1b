"""A lead: the residual takes in where a change is going, before it gets there.

    c = w - b;    r += (c + lead (c - c')) share;    c' = c         c': the change of the scan before

A residual makes updates late, by as long as it takes to fill, and what is late acts as momentum on top of the optimizer's
own: weights overshoot and swing. A lead of h scans takes the change as it will be h scans on, if it goes on as it does.
The momentum mu of an optimizer stretches what one gradient does over many steps, mu / (1 - mu) of it after the first; a
lead of as much counts all of it at once. Nothing is made up: the leads of all scans add up to that of the last one.

    sum of (c + lead (c - c')) = sum of c + lead (the last c)

Our own form of what Lin et al. 2018 do about momentum in residuals (DGC): they forget it where something is sent, which
needs it to be in the codec; a lead needs to know nothing of the optimizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from taut.codecs.codec import Vector

PIECE = 1 << 16  # elements, while they are in the processor's cache; of a tensor on a GPU, all at once


def take_lead(w: Vector, b: Vector, r: Vector, before: Vector, factor: float) -> None:
    """r += (c - c') factor; c' (``before``) = c, c being w - b. In place; the same bits from NumPy and torch.

    >>> w, b, r, before = (np.array(v, np.float32) for v in ([3.0], [1.0], [0.5], [1.0]))
    >>> take_lead(w, b, r, before, 4.0); r.tolist(), before.tolist()
    ([4.5], [2.0])
    """
    step = PIECE if isinstance(w, np.ndarray) else max(1, len(w))
    times: Any = np.float32(factor) if isinstance(w, np.ndarray) else w.new_full((), factor)
    for lo in range(0, len(w), step):
        change, last = w[lo : lo + step] - b[lo : lo + step], before[lo : lo + step]
        r[lo : lo + step] += (change - last) * times
        last[:] = change

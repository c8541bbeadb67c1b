"""The mean over samples by way of a sum: the weight travels as one more element."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from taut.errors import Misuse

Vector = npt.NDArray[np.float32]


def weigh(values: Vector, samples: int, out: Vector) -> None:
    """Write samples * ``values`` and, as the last element, ``samples`` to ``out``, which is one longer.

    mean = sum_i s_i x_i / sum_i s_i, where x_i is the mean over the s_i samples of position i. The sum of all samples
    must stay at or below 2^24, up to which a float32 counts exactly.
    """
    if len(out) != len(values) + 1:
        raise Misuse(f"room for {len(out)} elements", f"{len(values) + 1}: the values and their weight")
    np.multiply(values, np.float32(samples), out=out[:-1])
    out[-1] = samples


def mean(total: Vector, out: Vector) -> int:
    """Divide what ``weigh`` made, now summed, by its weight into ``out``; how many samples those were. Zeros for none.

    ``total`` is only read, since the transport may still be sending it.

    >>> total, part, out = np.zeros(3, np.float32), np.zeros(3, np.float32), np.zeros(2, np.float32)
    >>> for values, samples in (([1, 1], 3), ([5, 9], 1)):
    ...     weigh(np.float32(values), samples, part)
    ...     total += part
    >>> mean(total, out), out.tolist()
    (4, [2.0, 3.0])
    """
    samples = int(total[-1])
    if samples:
        np.divide(total[:-1], total[-1], out=out)
    else:
        out[:] = 0.0
    return samples

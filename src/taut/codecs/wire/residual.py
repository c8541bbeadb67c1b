"""The residual of a worker that leaves, as payloads for another one to take over: plain float32, in parts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from taut.codecs.wire.payload import Bytes, Header, Kind, build, read
from taut.codecs.wire.validate import validate
from taut.errors import MalformedMessage

if TYPE_CHECKING:
    from taut.codecs.codec import Codec, State

PART_ELEMENTS = 1 << 23  # at most, so that no part outgrows a message


def residual_parts(codec: Codec, state: State) -> Iterator[bytes]:
    """Yield those parts of the residual that are not zero.

    >>> from taut.codecs import parse
    >>> codec, w = parse("threshold:tau=2^-6"), np.zeros(64, np.float32)
    >>> state = codec.start(w, workers=1)
    >>> w[5] = 0.25; payload = codec.emit(state, 0, 64)
    >>> [(base, float(left[5])) for base, left in (read_residual(part, 64) for part in residual_parts(codec, state))]
    [(0, 0.234375)]
    """
    left: Any = codec.left(state)
    for lo in range(0, state.size if left is not None else 0, PART_ELEMENTS):
        part = state.kernels.host(left[lo : lo + PART_ELEMENTS])
        if part.any():
            yield build(Header(Kind.DENSE, 0.0, lo, len(part), len(part)), part)


def read_residual(payload: Bytes, size: int) -> tuple[int, npt.NDArray[np.float32]]:
    """Return where a part begins and its values, for ``Codec.inherit``. Raises ``MalformedMessage`` if it is none."""
    head = validate(payload, size)
    if head.kind is not Kind.DENSE:
        raise MalformedMessage(f"a {head.kind.name} payload as a worker's residual")
    return head.base, read(payload, np.float32, head.length)

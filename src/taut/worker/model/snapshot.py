"""A replica's whole state as bytes, which a donor gives to a newcomer."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from taut.core.events import Include
from taut.errors import MalformedMessage


class _Header(msgspec.Struct, frozen=True, array_like=True):
    vector_nbytes: int
    still_nbytes: int
    grid: dict[str, list[int]]
    tail: list[tuple[int, int, int, int]]  # origin, lo, hi, nbytes
    training_nbytes: int = 0
    steps: int = 0


@dataclass(frozen=True)
class Snapshot:
    """``vector``: the shared weights; ``still``: frozen parameters and buffers; ``grid``: of the sums; ``tail``: updates
    in the weights that some workers may not have yet (``Synced``); ``training``: the optimizer's state and the like, if
    all must make the same steps (``training_state.py``); ``steps``: how far the donor is in the run's present phase."""

    vector: bytes | memoryview
    still: bytes | memoryview = b""
    grid: dict[str, list[int]] = field(default_factory=dict)
    tail: tuple[Include, ...] = ()
    training: bytes | memoryview = b""
    steps: int = 0


def pack(state: Snapshot) -> bytes:
    """Return the state as bytes.

    >>> state = Snapshot(b"abcd", b"e", {"sizes": [1]}, (Include(3, 1, 2, b"xy"),), b"f", steps=7)
    >>> unpack(pack(state)) == state
    True
    """
    tail = [(item.origin, item.lo, item.hi, len(item.payload)) for item in state.tail]
    sizes = (len(state.vector), len(state.still))
    header = msgspec.msgpack.encode(_Header(*sizes, state.grid, tail, len(state.training), state.steps))
    parts = [len(header).to_bytes(4, "little"), header, state.vector, state.still, state.training]
    return b"".join(parts + [item.payload for item in state.tail])


def unpack(data: bytes | memoryview) -> Snapshot:
    """Return the state in ``data``. Raises ``MalformedMessage``. Its weights are views of ``data``, not copies."""
    view = memoryview(data)
    try:
        start = 4 + int.from_bytes(view[:4], "little")
        header = msgspec.msgpack.decode(view[4:start], type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"a state that cannot be read: {error}") from None
    sizes = [header.vector_nbytes, header.still_nbytes, header.training_nbytes, *(nbytes for *_, nbytes in header.tail)]
    if min(*sizes, header.steps) < 0 or start + sum(sizes) != len(data):
        raise MalformedMessage(f"a state of {len(data)} bytes whose parts take {start + sum(sizes)}")
    parts = []
    for size in sizes:
        parts.append(view[start : start + size])
        start += size
    tails = zip(header.tail, parts[3:], strict=True)
    tail = tuple(Include(origin, lo, hi, bytes(payload)) for (origin, lo, hi, _), payload in tails)
    return Snapshot(parts[0], parts[1], header.grid, tail, parts[2], header.steps)

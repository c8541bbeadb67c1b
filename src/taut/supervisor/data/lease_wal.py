"""What is written down before workers are told of it: leases, what was set aside, what was reported. Pure.

A supervisor keeps all that it knows once a second (``snapshot.py``); between two of those, it appends what concerns the
data, so that one that comes back knows all that was ever dealt. A later entry on the same places replaces an earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from taut.core.messages import Lease
from taut.core.sample_ranges import Span
from taut.errors import StorageFailed


class Dealt(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Worker ``rank`` has this lease, of a pass of ``length`` places."""

    rank: int
    lease: Lease
    length: int


class Trained(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Worker ``rank`` reported these leases as trained on."""

    rank: int
    leases: list[int]


class SetAside(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """These places are for worker ``rank`` alone, of passes of ``length`` places."""

    rank: int
    spans: list[Span]
    length: int


class Restarted(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """This pass begins anew, with ``length`` places."""

    epoch: int
    length: int


Entry = Dealt | Trained | SetAside | Restarted


def pack(entries: Sequence[Entry]) -> bytes:
    """For the store."""
    return msgspec.msgpack.encode(entries)


def unpack(data: bytes) -> list[Entry]:
    """
    >>> unpack(pack([Trained(1, [4, 5]), SetAside(0, [(2, 0, 8)], 100)]))
    [Trained(rank=1, leases=[4, 5]), SetAside(rank=0, spans=[(2, 0, 8)], length=100)]
    """
    try:
        return msgspec.msgpack.decode(data, type=list[Entry])
    except msgspec.DecodeError as error:
        raise StorageFailed(f"what the supervisor wrote down of leases cannot be read: {error}") from None

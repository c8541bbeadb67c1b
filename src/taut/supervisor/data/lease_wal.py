"""Write-ahead log of leases, reserves and reports: entries are stored before workers are told. Pure.

A supervisor stores a snapshot once a second (``snapshot.py``); in between, it appends entries about the data, so that a
restarted one knows all leases. A later entry on the same indices replaces an earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from taut.core.messages import Lease
from taut.core.sample_ranges import Span
from taut.errors import StorageFailed


class Dealt(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Worker ``rank`` has this lease, of a pass of ``length`` samples."""

    rank: int
    lease: Lease
    length: int


class Trained(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Worker ``rank`` reported these leases as trained on."""

    rank: int
    leases: list[int]


class SetAside(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """These spans are reserved for worker ``rank``, of passes of ``length`` samples."""

    rank: int
    spans: list[Span]
    length: int


class Restarted(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """This pass begins anew, with ``length`` samples."""

    epoch: int
    length: int


Entry = Dealt | Trained | SetAside | Restarted


def pack(entries: Sequence[Entry]) -> bytes:
    """Return the entries as bytes for the store."""
    return msgspec.msgpack.encode(entries)


def unpack(data: bytes) -> list[Entry]:
    """Return the entries in bytes from the store.

    >>> unpack(pack([Trained(1, [4, 5]), SetAside(0, [(2, 0, 8)], 100)]))
    [Trained(rank=1, leases=[4, 5]), SetAside(rank=0, spans=[(2, 0, 8)], length=100)]
    """
    try:
        return msgspec.msgpack.decode(data, type=list[Entry])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StorageFailed(f"the supervisor's log of leases cannot be read: {error}") from None

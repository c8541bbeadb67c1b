"""Between workers."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from taut.core.messages.base import MAX_WORKERS, Count, Message, Rank, Real, Word
from taut.core.messages.membership import MOST_VIEWS, View, ViewNumber


class Span(Struct, frozen=True, array_like=True):
    """Updates ``lo..hi`` of ``origin``, merged into one payload. ``lo == hi`` for one update."""

    origin: Rank
    lo: Annotated[int, Meta(ge=1, le=2**62)]
    hi: Annotated[int, Meta(ge=1, le=2**62)]


class Updates(Message, frozen=True):
    """Updates of one origin, in order; one payload frame per span. ``round`` tells retransmissions apart; ``echo`` is how
    many of the receiver's own updates the sender had included when it sent this (so that staleness can be measured)."""

    round: Count
    echo: Count
    spans: Annotated[list[Span], Meta(max_length=1024)]
    phase: Count = 0  # of a run that changes its strategy


class Mark(Struct, frozen=True, array_like=True):
    """The hash chain of what ``origin`` sent, as the sender of the report has it, up to update ``position``."""

    origin: Rank
    position: Count
    value: Annotated[bytes, Meta(max_length=32)]


class Report(Message, frozen=True):
    """What a worker holds. It acknowledges, asks for what is missing, and tells what is known of the dead; repeating it
    is harmless. ``position``: of the receiver's stream, included up to here (-1: no state yet, hold everything)."""

    round: Count
    position: Annotated[int, Meta(ge=-1, le=2**62)]
    gap: bool  # something before what arrived is missing: send again from `position`
    have: Annotated[dict[Rank, Count], Meta(max_length=MAX_WORKERS)]  # received, per origin
    sealed: Annotated[list[Rank], Meta(max_length=MAX_WORKERS)]  # the dead and gone, from whom nothing more is taken
    final: Annotated[int, Meta(ge=-1, le=2**62)]  # this worker's last update, -1 while it may send more
    clock: Count = 0  # iterations made so far
    phase: Count = 0
    # of its own updates: nobody stands within these, nor will
    merged: Annotated[list[tuple[Count, Count]], Meta(max_length=64)] = field(default_factory=list)
    marks: Annotated[list[Mark], Meta(max_length=2 * MAX_WORKERS)] = field(default_factory=list)


class StateRequest(Message, frozen=True):
    """A joiner asks its donor for ``nbytes`` of its state in ``phase``, from ``offset`` on. The first request (offset 0)
    makes a snapshot, as soon as the donor is in that phase."""

    offset: Count
    phase: Count = 0
    nbytes: Annotated[int, Meta(ge=1, le=1 << 22)] = 1 << 20  # at most


class StateChunk(Message, frozen=True):
    """Part of a replica's state; one payload frame. ``have`` is the version vector of the whole state."""

    offset: Count
    total: Count
    have: Annotated[dict[Rank, Count], Meta(max_length=MAX_WORKERS)]
    phase: Count = 0


class Note(Struct, frozen=True, array_like=True):
    """What a payload is, for methods that exchange vectors. What the fields mean is the method's own affair; ``numbers``
    is for the few scalars that go with it."""

    kind: Word
    round: Count = 0
    part: Count = 0
    numbers: Annotated[list[Real], Meta(max_length=64)] = []


class Parcel(Message, frozen=True):
    """The ``seq``-th message of a channel from one worker to another, or one of the ``parts`` it was cut into (each has a
    number of its own); one payload frame. ``received``: how many of the other direction's have come."""

    seq: Annotated[int, Meta(ge=1, le=2**62)]
    received: Count
    note: Note
    part: Annotated[int, Meta(ge=0, le=2**31)]
    parts: Annotated[int, Meta(ge=1, le=2**31)]
    phase: Count = 0


class Receipt(Message, frozen=True):
    """So many parcels of the receiver's have come, in order. ``gap``: a later one came: send again from there."""

    received: Count
    gap: bool = False
    phase: Count = 0


class Presence(Message, frozen=True):
    """In lock-step, while no supervisor is heard: I am here, and this is my membership. Repeated at every heartbeat, so
    none of them matters. ``number``: the last election that I voted in, for ``candidate`` (-1: that vote is void), which
    asks for the members ``proposed``. ``views``: the memberships that may be in force as far as I know, the one that I am
    in last. ``hears``: I do hear the supervisor."""

    number: ViewNumber
    candidate: Annotated[int, Meta(ge=-1, le=2**31 - 1)]
    proposed: Annotated[list[Rank], Meta(max_length=MAX_WORKERS)]
    views: Annotated[list[View], Meta(min_length=1, max_length=MOST_VIEWS)]
    hears: bool = False


PeerMessage = Updates | Report | StateRequest | StateChunk | Parcel | Receipt | Presence

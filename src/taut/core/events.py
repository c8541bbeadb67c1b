"""What a strategy is told, and what it answers. Strategies see nothing else of the world."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from msgspec import Struct

from taut.core.messages import Note, Parcel, Receipt, Report, Updates


class Checked(Protocol):
    """The result of checking a payload. ``nbytes``: the memory that the result takes."""

    @property
    def nbytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Include:
    """Action: include these updates (of one origin, merged) in the local replica. ``checked``: what was found when the
    payload was looked at, so that this need not be done again."""

    origin: int
    lo: int
    hi: int
    payload: bytes
    checked: Checked | None = field(default=None, compare=False, repr=False)

    @property
    def nbytes(self) -> int:
        """Return the bytes that the updates take while they wait."""
        return len(self.payload) + (0 if self.checked is None else self.checked.nbytes)


# ------------------------------------------------------------------------------------------------------- events


class Published(Struct, frozen=True):
    """The local iteration produced an update (``payload``), or none (``None``: an iteration that had nothing to say)."""

    payload: bytes | None


class Arrived(Struct, frozen=True):
    """A neighbour sent this."""

    sender: int
    message: Updates | Report | Parcel | Receipt
    payloads: list[bytes]


class Taken(Struct, frozen=True):
    """The local replica has included everything it was handed, up to these positions."""

    positions: dict[int, int]


class PeerJoined(Struct, frozen=True):
    """A neighbour is in the run from now on."""

    rank: int


class PeerGone(Struct, frozen=True):
    """A neighbour died or left; nothing more comes from it directly."""

    rank: int


class PeerAhead(Struct, frozen=True):
    """A neighbour that had no state yet begins in a later phase of the run. Nothing came from it in this one, and nothing
    will."""

    rank: int


class Synced(Struct, frozen=True):
    """This worker now has a state that contains exactly the updates ``have``. ``tail``: those of them that not everybody
    may have yet, one by one, so that this worker can pass them on should their origin and the donor die."""

    have: dict[int, int]
    tail: list[Include]


class Ticked(Struct, frozen=True):
    """This worker's clock, for strategies that bound the delay: so many iterations are behind it."""

    clock: int


class Ended(Struct, frozen=True):
    """This worker will publish no more."""


class Blocked(Struct, frozen=True):
    """The transport had no room for this message to this neighbour: it was not sent."""

    to: int
    message: Updates | Parcel


class Tell(Struct, frozen=True):
    """A method's message to another worker (any member, not only neighbours): the action of a method, and the event that
    its channels are told. The payload must not change afterwards: copy what will."""

    to: int
    note: Note
    payload: bytes | memoryview = b""


class Tick(Struct, frozen=True):
    """Time has passed."""


Event = Published | Arrived | Taken | PeerJoined | PeerGone | PeerAhead | Synced | Ticked | Ended | Blocked | Tell | Tick

# ------------------------------------------------------------------------------------------------------ actions


class Send(Struct, frozen=True):
    """Send this to that neighbour."""

    to: int
    message: Updates | Report | Parcel | Receipt
    payloads: Sequence[bytes | memoryview] = ()


class Drained(Struct, frozen=True):
    """Every update of every worker is here; ``have`` says which they are."""

    have: dict[int, int]


class Heard(Struct, frozen=True):
    """A method's message from ``sender``, once and in order per sender: the action of its channels, and the event that
    the method is told."""

    sender: int
    note: Note
    payload: bytes = b""


class PayloadRefused(Struct, frozen=True):
    """A payload of ``sender`` was not right, and is left out: count it."""

    sender: int
    why: str


class Disputed(Struct, frozen=True):
    """Worker ``other`` holds other updates of ``origin`` than this worker: one of the two does not tell the truth, or
    ``origin`` sent them different ones."""

    origin: int
    other: int


Action = Send | Include | Drained | Heard | PayloadRefused | Disputed

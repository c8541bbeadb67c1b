"""What happens to a method that exchanges vectors, and what it asks for: the records that go in and come out."""

from __future__ import annotations

from dataclasses import dataclass

from taut.core.events import Ended
from taut.core.messages import Note
from taut.strategies.member_place import MemberPlace

# ------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Stepped:
    """A local step on ``samples`` samples at learning rate ``rate`` is over (none: the worker has run out of data)."""

    samples: int
    rate: float = 0.0


@dataclass(frozen=True, slots=True)
class Heard:
    """``sender`` sent this. Reliable, in order per sender."""

    sender: int
    note: Note
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class Placed:
    """The members changed. Who is missing from ``place`` is gone and will say nothing more."""

    place: MemberPlace


@dataclass(frozen=True, slots=True)
class Draining:
    """The run is over for everybody."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """This worker goes before the end: it makes no more steps, and tells what is still worth sending. What its codec
    keeps beyond that is handed on by the shell (``residual_handoff.py``)."""


@dataclass(frozen=True, slots=True)
class HeldUp:
    """This worker has waited in its turn for far longer than it ever does: somebody may have died. It has data to train
    on meanwhile, or has got some. Only methods that ``drifts`` are told."""


MethodEvent = Stepped | Heard | Placed | Ended | Draining | Leaving | HeldUp

# ------------------------------------------------------------------------------------------------------ actions


@dataclass(frozen=True, slots=True)
class Tell:
    """Post this to that worker (any member, not only neighbours). The payload must not change afterwards: copy what
    will."""

    to: int
    note: Note
    payload: bytes | memoryview = b""


@dataclass(frozen=True, slots=True)
class Proceed:
    """The worker may take its next step; x is its own again."""


@dataclass(frozen=True, slots=True)
class Finished:
    """This worker's part is over. x is what it ends with."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """A message of ``sender`` is refused for this reason, and the method goes on without it. (Where nothing follows from
    a refusal, raising ``MalformedMessage`` is the same.)"""

    sender: int
    why: str


MethodAction = Tell | Proceed | Finished | Refuse

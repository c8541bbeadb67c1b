"""What the training thread asks of the communication thread, beside the events of strategies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taut.core.events import Event, Synced, Tell
from taut.core.messages import Message
from taut.worker.comm.phase_protocol import PhaseProtocol, Protocol
from taut.worker.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Say:
    """This, to the supervisor."""

    message: Message
    payloads: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class Grant:
    """A snapshot, for those who asked for one, and which updates it contains."""

    state: Snapshot
    have: dict[int, int]


@dataclass(frozen=True, slots=True)
class PostIn:
    """A method's message, or the news that the state is here, in this phase."""

    stage: PhaseProtocol
    event: Tell | Synced


@dataclass(frozen=True, slots=True)
class Advance:
    """The phase is over for this worker: this is run in the next one."""

    protocol: Protocol


Command = Event | Say | Grant | PostIn | Advance

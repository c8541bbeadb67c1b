"""Actions that the cluster's state machine returns, to be carried out in this order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from taut.core.messages import Pulse, Statistics, SupervisorMessage
from taut.supervisor.view import Outcome


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send this message to this connection."""

    connection: bytes
    message: SupervisorMessage
    payloads: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """Keep this event."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Joined:
    """Keep that this worker was admitted."""

    rank: int
    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class Departed:
    """Keep that this worker is gone."""

    rank: int
    reason: str


@dataclass(frozen=True, slots=True)
class KeepStatistics:
    """Keep these statistics; ``final``: the worker's last."""

    rank: int
    statistics: Statistics
    final: bool = False


@dataclass(frozen=True, slots=True)
class Save:
    """Write a model (safetensors bytes), under this name, and report the result by ``Cluster.saved``."""

    data: bytes
    name: str = "model"


@dataclass(frozen=True, slots=True)
class SaveIndex:
    """Write the index of an ensemble, a JSON object, and report the result by ``Cluster.saved``."""

    index: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class SaveCheckpoint:
    """Write the manifest of this checkpoint, all parts of which are on disk, and report by ``Cluster.checkpointed``."""

    number: int
    manifest: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class DropCheckpoint:
    """Remove this checkpoint, which was not completed."""

    number: int


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The run is over."""

    outcome: Outcome


Action = (
    SendMessage
    | Record
    | Joined
    | Departed
    | KeepStatistics
    | Save
    | SaveIndex
    | SaveCheckpoint
    | DropCheckpoint
    | RunFinished
)


@dataclass(slots=True)
class Outbox:
    """Collects actions while an event is handled."""

    actions: list[Action] = field(default_factory=list)
    told: dict[bytes, int] = field(default_factory=dict)  # by connection: messages, without pulses

    def send(self, connection: bytes, message: SupervisorMessage, *payloads: bytes) -> None:
        if not isinstance(message, Pulse):
            self.told[connection] = self.told.get(connection, 0) + 1
        self.actions.append(SendMessage(connection, message, payloads))

    def record(self, kind: str, text: str) -> None:
        self.actions.append(Record(kind, text))

    def add(self, action: Action) -> None:
        self.actions.append(action)

    def take(self) -> list[Action]:
        """Return all actions so far, and empty the outbox."""
        taken, self.actions = self.actions, []
        return taken

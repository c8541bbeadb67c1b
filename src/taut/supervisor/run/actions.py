"""Actions that the cluster's state machine returns, to be carried out in this order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from taut.core.messages import HostUse, MetricPoint, Pulse, Statistics, SupervisorMessage
from taut.supervisor.view import Outcome


class Action(Struct, frozen=True):
    """An action of the state machine."""


class SendMessage(Action, frozen=True):
    """Send this message to this connection."""

    connection: bytes
    message: SupervisorMessage
    payloads: tuple[bytes, ...] = ()


class Record(Action, frozen=True):
    """Keep this event."""

    kind: str
    text: str


class Kept(Action, frozen=True):
    """Something for the run's store."""


class Joined(Kept, frozen=True):
    """Keep that this worker was admitted."""

    rank: int
    host: str
    pid: int


class Paused(Kept, frozen=True):
    """Keep whether this worker is paused."""

    rank: int
    paused: bool


class Departed(Kept, frozen=True):
    """Keep that this worker is gone."""

    rank: int
    reason: str


class KeepStatistics(Kept, frozen=True):
    """Keep these statistics; ``final``: the worker's last."""

    rank: int
    statistics: Statistics
    final: bool = False


class KeepHostUse(Kept, frozen=True):
    """Keep how busy a host is."""

    host: str
    use: HostUse


class KeepMetrics(Kept, frozen=True):
    """Keep what a worker's script has logged."""

    rank: int
    points: Sequence[MetricPoint]


class KeepImage(Kept, frozen=True):
    """Keep an image that a worker's script has logged."""

    rank: int
    step: int
    name: str
    png: bytes


class ExpectModel(Action, frozen=True):
    """Get ready to save a model: the run is being drained."""


class Save(Action, frozen=True):
    """Write a model (safetensors bytes), under this name, and report the result by ``Cluster.saved``."""

    data: bytes
    name: str = "model"


class TakeModel(Action, frozen=True):
    """Take the model that worker ``rank`` handed over, as ``Save`` does one that came in a message."""

    rank: int
    nbytes: int
    checksum: int
    name: str = "model"


class SaveIndex(Action, frozen=True):
    """Write the index of an ensemble, a JSON object, and report the result by ``Cluster.saved``."""

    index: Mapping[str, object]


class SaveCheckpoint(Action, frozen=True):
    """Write the manifest of this checkpoint, all parts of which are on disk, and report by ``Cluster.checkpointed``."""

    number: int
    manifest: Mapping[str, object]


class DropCheckpoint(Action, frozen=True):
    """Remove this checkpoint, which was not completed."""

    number: int


class RunFinished(Action, frozen=True):
    """The run is over."""

    outcome: Outcome


class Outbox(Struct):
    """Collects actions while an event is handled."""

    actions: list[Action] = []
    told: dict[bytes, int] = {}  # by connection: messages, without pulses

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

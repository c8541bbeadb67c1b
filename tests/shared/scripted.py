"""A run without sockets: says messages to the state machine and keeps what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from taut.core.messages import (
    PROTOCOL_VERSION,
    Digest,
    Done,
    Heartbeat,
    Hello,
    Message,
    Ready,
    Roster,
    Statistics,
    TensorSpec,
    WorkerMessage,
)
from taut.supervisor.data.lease_wal import pack
from taut.supervisor.run.actions import Action, Record, RunFinished, Save, SendMessage
from taut.supervisor.run.cluster import Cluster
from taut.supervisor.run.plan import RunPlan
from taut.supervisor.storage.snapshot import keep, outline, recall
from taut.supervisor.view import Outcome

MODEL = [TensorSpec("a.weight", [3, 4], "float32", "trained"), TensorSpec("a.mean", [2], "float32", "buffer")]
M = TypeVar("M", bound=Message)


def hello(pid: int, model: list[TensorSpec] | None = None, version: int = PROTOCOL_VERSION) -> Hello:
    return Hello(version, MODEL if model is None else model, f"tcp://host:{pid}", "k" * 40, "host", pid)


def digest(text: str = "same", exact: bool = True, samples: int = 10) -> Digest:
    return Digest(text, exact, {}, Statistics(samples=samples, steps=1))


@dataclass
class Scripted:
    """Worker ``r`` speaks over the connection ``b"r"``; its process number is 100 + r."""

    workers: int = 2
    now: float = 0.0
    sent: dict[bytes, list[SendMessage]] = field(default_factory=dict)
    events: list[Record] = field(default_factory=list)
    saves: list[bytes] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    phases: int = 3
    resync: int = 0

    def __post_init__(self) -> None:
        plan = RunPlan("quiet-otter", 7, self.workers, "{}", "host", phases=self.phases, resync=self.resync)
        self.cluster = Cluster(plan, self.now)

    # ------------------------------------------------------------------------------------------ what happens

    def take(self, actions: list[Action]) -> list[Action]:
        for action in actions:
            match action:
                case SendMessage(connection):
                    self.sent.setdefault(connection, []).append(action)
                case Record():
                    self.events.append(action)
                case Save(data):
                    self.saves.append(data)
                case RunFinished(outcome):
                    self.outcomes.append(outcome)
        return actions

    def say(self, rank: int, message: WorkerMessage, *payloads: bytes) -> list[Action]:
        worker = self.cluster.members.find(b"%d" % rank)
        if message == Done() and worker is not None:  # all that it said before has come
            message = msgspec.structs.replace(message, said=worker.heard)
        return self.take(self.cluster.heard(b"%d" % rank, message, payloads, self.now))

    def join(self, *ranks: int) -> None:
        for rank in ranks:
            self.say(rank, hello(100 + rank))

    def train(self, *ranks: int) -> None:
        """Join and become ready."""
        self.join(*ranks)
        for rank in ranks:
            self.say(rank, Ready())

    def done(self, *ranks: int) -> None:
        for rank in ranks:
            self.say(rank, Done())

    def drained(self, *ranks: int, text: str = "same") -> None:
        for rank in ranks:
            self.say(rank, digest(text), b"\0" * 8)

    def exit(self, rank: int, reason: str = "killed by SIGKILL", clean: bool = False) -> None:
        """The engine's news, and the moment of grace after it."""
        self.take(self.cluster.exited(100 + rank, reason, clean, self.now))
        self.pass_time(0.3)

    def beat(self, *ranks: int) -> None:
        for rank in ranks:
            self.say(rank, Heartbeat(Statistics(steps=1), []))

    def pass_time(self, seconds: float, *beating: int) -> None:
        """Time passes in ticks of a tenth of a second; the ranks given beat every half second."""
        for step in range(1, round(seconds * 10) + 1):
            self.now += 0.1
            if step % 5 == 0:
                self.beat(*beating)
            self.take(self.cluster.tick(self.now))

    # ------------------------------------------------------------------------------------------ what was said

    def heard(self, rank: int, kind: type[M]) -> list[M]:
        """Everything of this kind that this worker was told."""
        return [one.message for one in self.sent.get(b"%d" % rank, []) if isinstance(one.message, kind)]

    def kinds(self, rank: int) -> list[str]:
        return [type(one.message).__name__ for one in self.sent.get(b"%d" % rank, [])]

    def roster(self, rank: int) -> Roster:
        return self.heard(rank, Roster)[-1]

    @property
    def outcome(self) -> Outcome:
        assert len(self.outcomes) == 1, self.outcomes
        return self.outcomes[0]

    def told(self, kind: str) -> str:
        return "\n".join(event.text for event in self.events if event.kind == kind)


class Restarted(Scripted):
    """A scripted run whose supervisor can die and come back. It writes down what the real one does, before anything is
    sent; ``keep`` is what the real one does once a second."""

    term = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.drawn: tuple[object, ...] = ()
        self.ahead: list[bytes] = []
        self.keep()

    def keep(self) -> None:
        self.data, self.kept_s = keep(self.cluster, self.now), self.now
        self.ahead.clear()
        self.cluster.leases.log.clear()

    def take(self, actions: list[Action]) -> list[Action]:
        if self.drawn != outline(self.cluster):
            self.drawn = outline(self.cluster)
            self.keep()
        elif self.cluster.leases.log:
            self.ahead.append(pack(self.cluster.leases.log))
        self.cluster.leases.log.clear()
        return super().take(actions)

    def come_back(self) -> None:
        """It was killed, and what it had sent in this life and nobody took is lost."""
        self.term += 1
        self.sent.clear()
        self.cluster = recall(self.cluster.plan, self.data, self.term, self.now, self.ahead, self.now - self.kept_s)

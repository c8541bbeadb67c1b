"""Fuzzing of the supervisor's handlers: whatever valid message comes, in whatever state the run is, none of them raises.

    from fuzzers.handler_fuzz import fuzz_handlers
    fuzz_handlers(count=100_000, seed=0)

Random messages (``random_messages.py``) come between those of correct workers, so that the run makes progress. Every
answer of the supervisor must be a message that a worker can read, and its snapshot and log must be readable for its
successor.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fuzzers.random_messages import MODEL, RandomMessages
from taut.core import messages as m
from taut.core.sample_ranges import count as count_samples
from taut.errors import Misuse
from taut.specs import parse_interval
from taut.supervisor.data.lease_wal import pack
from taut.supervisor.metrics import cluster_rate, total
from taut.supervisor.run.actions import Action, Save, SaveCheckpoint, SaveIndex, SendMessage
from taut.supervisor.run.cluster import Cluster
from taut.supervisor.run.plan import RunPlan
from taut.supervisor.storage.snapshot import keep, outline, recall
from taut.transport.framing import decode, encode, payload_count

STATES = ("waiting", "training", "draining", "saving", "finished", "failed", "recovered")
MESSAGES_PER_RUN = 60
WORKERS = 3


@dataclass
class Handled:
    """Counts of random messages by kind and by state of the run, and of answers."""

    kinds: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    answers: int = 0


def fuzz_handlers(count: int, seed: int) -> Handled:
    """Send ``count`` random messages to clusters in all states. An exception of a handler is raised, with the message.

    >>> handled = fuzz_handlers(count=400, seed=0)
    >>> handled.kinds.total(), handled.answers > 100
    (400, True)
    """
    rng, handled = random.Random(seed), Handled()
    while handled.kinds.total() < count:
        target = FuzzTarget(rng, handled, rng.choice(STATES))
        for _ in range(min(MESSAGES_PER_RUN, count - handled.kinds.total())):
            target.say_something()
        target.look()
    return handled


class FuzzTarget:
    """A run of some kind, brought to ``state`` by correct workers."""

    def __init__(self, rng: random.Random, handled: Handled, state: str) -> None:
        self.rng, self.handled, self.now = rng, handled, 0.0
        self.length = rng.choice((40, 4000))
        self.messages = RandomMessages(rng, self.length)
        self.replies: list[tuple[bytes, Any, bytes]] = []  # what correct workers would send now
        self.cluster = Cluster(self._plan(), self.now)
        self.kept, self.ahead = keep(self.cluster, self.now), list[bytes]()
        self.drawn = outline(self.cluster)
        self.connections = [b"%d" % rank for rank in range(WORKERS)]
        self._bring_to(state)
        self.connections += [b"stranger", b"%d" % WORKERS]

    def _plan(self) -> RunPlan:
        rng = self.rng
        strategy = rng.choice(("async", "sync", "averaging"))
        return RunPlan(
            "fuzzed",
            seed=0,
            workers=WORKERS,
            settings="{}",
            host="host",
            strategy=strategy,
            finish=rng.choice(("any", "best", "average", "ensemble")),
            admits_late=rng.random() < 0.8,
            topology=rng.choice(("complete", "ring")),
            majority=strategy == "sync",
            checkpoint_every=rng.choice((None, *map(parse_interval, ("5 steps", "1s", "0.1 epochs")))),
        )

    def _bring_to(self, state: str) -> None:
        for rank, connection in enumerate(self.connections):
            self.heard(connection, m.Hello(m.PROTOCOL_VERSION, MODEL, f"tcp://host:{rank}", "k" * 40, "host", 100 + rank))
        if state == "waiting":
            return
        for connection in self.connections:
            self.heard(connection, m.Ready())
        for connection in self.connections:
            self.heard(connection, m.Heartbeat(m.Statistics(5, 50, wall_s=1.0), [1.0, 2.0], said=2))
            self.heard(connection, m.LeaseRequest(0, self.length, 8, last=False, until=3))
        self.tick(1.0)
        if state == "recovered":
            self.restart()
        if state in ("draining", "saving", "finished"):
            self.take(self.cluster.drain("enough", self.now))
        if state in ("saving", "finished"):
            for connection in self.connections:
                self.heard(connection, m.Digest("ab", True, {0: 1}, m.Statistics(5, 50)), b"\0" * 8)
        if state == "finished":
            self.take(self.cluster.saved("model", "", self.now))
        if state == "failed":
            self.take(self.cluster.stop("stopped", self.now))

    # ------------------------------------------------------------------------------------------------------ events

    def say_something(self) -> None:
        """Send a random message from some worker, and now and then let something else happen before."""
        if self.replies and self.rng.random() < 0.5:
            self.heard(*self.replies.pop(self.rng.randrange(len(self.replies))))
        if self.rng.random() < 0.2:
            self.rng.choice(self._incidents())()
        self.handled.states[self.cluster.state] += 1
        connection = self.rng.choice(self.connections)
        message = self.messages.any(self.cluster, self.cluster.members.by_connection.get(connection, 0))
        self.handled.kinds[type(message).__name__] += 1
        payload = self.rng.randbytes(self.rng.choice((0, 8, 12, 100)))
        if isinstance(message, m.Upload):
            whole = min(message.total, 300)
            message = msgspec.structs.replace(message, total=whole, offset=min(message.offset, whole))
            payload = payload[: whole - message.offset]
        self.heard(connection, message, payload)

    def heard(self, connection: bytes, message: Any, payload: bytes = b"") -> None:
        """Handle a message as it is after passing through a socket."""
        message, payloads = decode(encode(message, [payload] * payload_count(message)), m.WorkerMessage)
        try:
            self.take(self.cluster.heard(connection, message, payloads, self.now))
        except Exception as error:
            error.add_note(f"in a run that is {self.cluster.state}, on {message} of {connection!r}")
            raise

    def _incidents(self) -> list[Callable[[], object]]:
        cluster, connection, rank = self.cluster, self.rng.choice(self.connections), self.rng.randrange(WORKERS)
        return [
            lambda: self.tick(self.rng.choice((0.1, 0.6, 3.0, 30.0))),
            lambda: self.tick(0.6),
            lambda: self.take(cluster.malformed(connection, "rubbish", self.now)),
            lambda: self.take(cluster.flooded(connection, self.rng.choice((1, 30_000)), self.now)),
            lambda: self.take(cluster.mishandled(connection, m.Ready(), "a trace", self.now)),
            lambda: cluster.closed(connection, self.now),
            lambda: cluster.paused(2.0, self.now),
            lambda: self.take(cluster.exited(100 + 2 * rank, "killed by SIGKILL", False, self.now)),
            lambda: self.take(cluster.unreachable(connection, self.now)),
            lambda: self._dismiss(rank),
            lambda: self._fall_silent(rank),
            self.restart,
        ]

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.take(self.cluster.tick(self.now))

    def _fall_silent(self, rank: int) -> None:
        """Let all but one worker send heartbeats, until this one is evicted."""
        for _ in range(8):
            for connection, other in list(self.cluster.members.by_connection.items()):
                if other != rank:
                    self.heard(connection, m.Heartbeat(m.Statistics(9, 90, wall_s=self.now), []))
            self.tick(2.5)

    def _dismiss(self, rank: int) -> None:
        with suppress(Misuse):
            self.take(self.cluster.dismiss(rank, "by hand", self.now, expel=self.rng.random() < 0.3))

    def restart(self) -> None:
        """Let another supervisor continue from the snapshot and the log of this one."""
        cluster = self.cluster
        if cluster.outcome is None and cluster.ending.verdict is None:
            self.cluster = recall(cluster.plan, self.kept, cluster.term + 1, self.now, self.ahead)

    def take(self, actions: Sequence[Action]) -> None:
        """Write the snapshot and the log, and carry the actions out as far as they concern the state machine."""
        cluster = self.cluster
        if self.drawn != outline(cluster):
            self.drawn, self.kept = outline(cluster), keep(cluster, self.now)
            self.ahead.clear()
        elif cluster.leases.log:
            self.ahead.append(pack(cluster.leases.log))
        cluster.leases.log.clear()
        for action in actions:
            error = "" if self.rng.random() < 0.7 else "no room"
            if isinstance(action, SendMessage):
                self.handled.answers += 1
                decode(encode(action.message, action.payloads), m.SupervisorMessage)
                self._reply(action.connection, action.message)
            elif isinstance(action, Save | SaveIndex):
                self.take(cluster.saved("" if error else "model", error, self.now))
            elif isinstance(action, SaveCheckpoint):
                msgspec.json.encode(action.manifest)
                self.take(cluster.checkpointed(action.number, "written", error, self.now))

    def _reply(self, connection: bytes, message: m.Message) -> None:
        """Note what a correct worker would answer."""
        worker = self.cluster.members.find(connection)
        said = 0 if worker is None else min(worker.heard, 2**62)
        answers: list[tuple[Any, bytes]] = []
        match message:
            case m.Lease(number):
                answers = [(m.LeaseDone([number]), b""), (m.LeaseRequest(0, self.length, 8, False, 3), b"")]
            case m.Reserve(version):
                answers = [(m.ReserveSeen(version, said), b"")]
            case m.Checkpoint(number):
                answers = [(m.CheckpointBegun(number, [], 0, 9), b""), (m.CheckpointDone(number, 9, "ab"), b"")]
            case m.Drain():
                answers = [(m.Digest("ab", True, {}, m.Statistics(5, 50), score=0.5), b"\0" * 8)]
            case m.Expulsion(welcome=True) if worker is not None:
                connection = b"again %d" % worker.rank
                self.connections.append(connection)
                hello = msgspec.structs.replace(worker.hello, was=worker.rank)
                answers = [(hello, b""), (m.Ready(self.cluster.ledger.phase), b"")]
                answers.append((m.Returned(worker.rank, "gone", 0, [], [self.messages.lease(self.cluster, 0)]), b""))
            case m.Finish(writer=writer) if worker is not None and worker.rank == writer:
                answers = [(m.Upload(0, 9, 0.5), b"the model")]
        self.replies += [(connection, *answer) for answer in answers]

    def look(self) -> None:
        """Compute the figures that a display shows; check that every sample of a pass is in one state."""
        rows = self.cluster.members.rows(self.now)
        total(row.statistics for row in rows)
        cluster_rate(row.statistics for row in rows)
        self.cluster.ending.distance()
        leases = self.cluster.leases
        leases.progress()
        for epoch, each in leases.passes.items():
            spans = [*leases.returned, *(span for spans in leases.reserved.values() for span in spans)]
            spans += [(lease.epoch, lease.lo, lease.hi) for _, lease in leases.open.values()]
            there = count_samples(span for span in spans if span[0] == epoch) + each.left + each.done
            assert there == each.length, f"{there} samples in pass {epoch} of {each.length}: {leases}"

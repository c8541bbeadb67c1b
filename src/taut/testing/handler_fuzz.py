"""Fuzzing of the supervisor's handlers: whatever valid message comes, in whatever state the run is, none of them raises.

from taut.testing.handler_fuzz import fuzz_handlers
fuzz_handlers(count=100_000, seed=0)

Messages are made from their types, with values that matter: ranks in and out of the run, leases of the sender and of
others, numbers at their bounds, texts of all kinds. All that the supervisor answers must be a message that a worker can
read, and what it keeps for a later life must be read back.
"""

from __future__ import annotations

import functools
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import msgspec
from msgspec import inspect

from taut.communication.framing import decode, encode, payload_count
from taut.core.messages import (
    PROTOCOL_VERSION,
    Digest,
    Done,
    Failed,
    Heartbeat,
    Hello,
    Lease,
    LeaseRequest,
    Ready,
    Statistics,
    SupervisorMessage,
    TensorSpec,
    Upload,
    View,
    WorkerMessage,
    own_lease,
)
from taut.supervisor.actions import Action, Save, SaveIndex, Send
from taut.supervisor.cluster import Cluster
from taut.supervisor.figures import cluster_rate, total
from taut.supervisor.memory import keep, recall
from taut.supervisor.plan import RunPlan
from taut.written import parse_interval

MODEL = [TensorSpec("w", [3, 4], "float32", "trained"), TensorSpec("mean", [2], "float32", "buffer")]
STATES = ("waiting", "training", "draining", "saving", "finished", "failed", "recovered")
MESSAGES_PER_RUN = 60
WORKERS = 3
KINDS: tuple[Any, ...] = get_args(WorkerMessage)
WEIGHTS = [0.1 if kind in (Done, Failed) else 1.0 for kind in KINDS]  # who has gone says nothing more
TEXTS = ("", "done", "ready", "training", "drained", "float32", "a" * 40, "a reason\nin two lines", "é\u4e2d")


@dataclass
class Handled:
    """How many messages of which kind were heard, in which states of the run, and how many answers were sent."""

    kinds: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    answers: int = 0


def fuzz_handlers(count: int, seed: int) -> Handled:
    """Say ``count`` random messages to clusters in all states. What a handler raises goes through, with the message.

    >>> handled = fuzz_handlers(count=400, seed=0)
    >>> handled.kinds.total(), handled.answers > 100
    (400, True)
    """
    rng, handled = random.Random(seed), Handled()
    while handled.kinds.total() < count:
        state = STATES[rng.randrange(len(STATES))]
        target = Target(rng, handled, state)
        for _ in range(min(MESSAGES_PER_RUN, count - handled.kinds.total())):
            target.say_something()
        target.look()
    return handled


class Target:
    """A run of some kind, brought to ``state`` by well-behaved workers."""

    def __init__(self, rng: random.Random, handled: Handled, state: str) -> None:
        self.rng, self.handled, self.now = rng, handled, 0.0
        strategy = rng.choice(("async", "sync", "averaging"))
        plan = RunPlan(
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
            checkpoint_every=rng.choice((None, parse_interval("5 steps"))),
        )
        self.cluster = Cluster(plan, self.now)
        self.connections = [b"%d" % rank for rank in range(WORKERS)]
        self._bring_to(state)
        self.connections += [b"stranger", b"%d" % WORKERS]

    def _bring_to(self, state: str) -> None:
        for rank, connection in enumerate(self.connections):
            self.heard(connection, Hello(PROTOCOL_VERSION, MODEL, f"tcp://host:{rank}", "k" * 40, "host", 100 + rank))
        if state == "waiting":
            return
        for connection in self.connections:
            self.heard(connection, Ready())
        for connection in self.connections:
            self.heard(connection, Heartbeat(Statistics(5, 50, wall_s=1.0), [1.0, 2.0], said=1))
            self.heard(connection, LeaseRequest(0, 4000, 8, last=False, until=3))
        self.tick(1.0)
        if state == "recovered":
            self.come_back()
        if state in ("draining", "saving", "finished"):
            self.take(self.cluster.drain("enough", self.now))
        if state in ("saving", "finished"):
            for connection in self.connections:
                self.heard(connection, Digest("ab", True, {0: 1}, Statistics(5, 50)), [b"\0" * 8])
        if state == "finished":
            self.take(self.cluster.saved("model", "", self.now))
        if state == "failed":
            self.take(self.cluster.stop("stopped", self.now))

    # ------------------------------------------------------------------------------------------------ what happens

    def heard(self, connection: bytes, message: Any, payloads: Sequence[bytes] = ()) -> None:
        """Hear a message, as it is after its way through a socket."""
        message, payloads = decode(encode(message, payloads), WorkerMessage)
        try:
            self.take(self.cluster.heard(connection, message, payloads, self.now))
        except Exception as error:
            error.add_note(f"in a run that is {self.cluster.state}, on {message} of {connection!r}")
            raise

    def say_something(self) -> None:
        """Let somebody say something, and now and then let something else happen."""
        self.handled.states[self.cluster.state] += 1
        connection = self.rng.choice(self.connections)
        message = self._made(self.rng.choices(KINDS, WEIGHTS)[0], self.cluster.members.by_connection.get(connection, 0))
        self.handled.kinds[type(message).__name__] += 1
        sizes = [self.rng.choice((0, 8, 12, 100)) for _ in range(payload_count(message))]
        payloads = [self.rng.randbytes(size) for size in sizes]
        if isinstance(message, Upload):
            total = min(message.total, 300)
            message = msgspec.structs.replace(message, total=total, offset=min(message.offset, total))
            payloads = [payloads[0][: total - message.offset]]
        self.heard(connection, message, payloads)
        if self.rng.random() < 0.2:
            self.rng.choice(self._incidents())()

    def _incidents(self) -> list[Callable[[], object]]:
        cluster, connection = self.cluster, self.rng.choice(self.connections)
        return [
            lambda: self.tick(self.rng.choice((0.1, 0.6, 3.0, 30.0))),
            lambda: self.tick(0.1),
            lambda: self.take(cluster.malformed(connection, "rubbish", self.now)),
            lambda: self.take(cluster.flooded(connection, self.rng.choice((1, 30_000)), self.now)),
            lambda: cluster.closed(connection, self.now),
            lambda: cluster.paused(2.0, self.now),
            lambda: self.take(cluster.exited(100 + self.rng.randrange(5), "killed by SIGKILL", False, self.now)),
            lambda: self.take(cluster.unreachable(connection, self.now)),
            lambda: self.take(cluster.checkpointed(self.rng.randrange(3), "", "", self.now)),
            self.come_back,
        ]

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.take(self.cluster.tick(self.now))

    def come_back(self) -> None:
        """Let another supervisor go on from what this one keeps."""
        cluster = self.cluster
        if cluster.outcome is None and cluster.ending.verdict is None:
            self.cluster = recall(cluster.plan, keep(cluster, self.now), cluster.term + 1, self.now)

    def take(self, actions: Sequence[Action]) -> None:
        """Carry the actions out as far as they concern the state machine."""
        for action in actions:
            if isinstance(action, Send):
                self.handled.answers += 1
                decode(encode(action.message, action.payloads), SupervisorMessage)
            elif isinstance(action, Save | SaveIndex):
                error = "" if self.rng.random() < 0.7 else "no room"
                self.take(self.cluster.saved("" if error else "model", error, self.now))

    def look(self) -> None:
        """Make the figures that a display shows, and what is kept."""
        rows = self.cluster.members.rows(self.now)
        total(row.statistics for row in rows)
        cluster_rate(row.statistics for row in rows)
        self.cluster.ending.distance()
        self.cluster.leases.progress()
        keep(self.cluster, self.now)

    # ------------------------------------------------------------------------------------------------ what is said

    def _made(self, kind: type[msgspec.Struct], rank: int) -> Any:
        """Return a random record of this type, as worker ``rank`` might say it."""
        return kind(**{each.name: self._value(each.name, each.type, rank) for each in _fields(kind)})

    def _value(self, name: str, kind: inspect.Type, rank: int) -> Any:  # noqa: PLR0911  # one case per type
        rng, likely = self.rng, self._likely(name, rank)
        if likely and rng.random() < 0.8:
            return rng.choice(likely)
        match kind:
            case inspect.UnionType():
                return self._value(name, rng.choice(kind.types), rank)
            case inspect.StructType(cls=cls):
                return self._lease(rank) if cls is Lease and rng.random() < 0.7 else self._made(cls, rank)
            case inspect.ListType():
                return [self._value(f"{name} item", kind.item_type, rank) for _ in range(rng.choice((0, 0, 1, 2, 5)))]
            case inspect.DictType():
                return {rng.choice((0, 1, 2, 7)): rng.choice((0, 9, 2**62)) for _ in range(rng.randrange(3))}
            case inspect.BoolType():
                return rng.random() < 0.5
            case inspect.NoneType():
                return None
            case inspect.FloatType(ge=ge, le=le) | inspect.IntType(ge=ge, le=le):
                assert ge is not None
                assert le is not None
                numbers: list[Any] = [ge, le, 0, 1, 2, 3, 8, 100, 2**31, 2**53, rng.randrange(64)]
                if isinstance(kind, inspect.FloatType):
                    numbers += [5e-324, 1e-300, 0.5, 1e17, -0.0]
                return rng.choice([number for number in numbers if ge <= number <= le])
            case inspect.StrType(pattern=pattern):
                return rng.choice([text for text in TEXTS if pattern is None or re.search(pattern, text)])
            case _:
                raise AssertionError(f"{name}: {kind}")

    def _likely(self, name: str, rank: int) -> list[Any]:
        """Return what a worker would say here."""
        cluster = self.cluster
        worker = cluster.members.workers.get(rank)
        heard = 0 if worker is None else worker.heard
        choices: dict[str, list[Any]] = {
            "said": [min(heard, 2**62)],
            "rank": [rank, (rank + 1) % WORKERS, WORKERS + 2],
            "epoch": [0, 1, 2, 3],
            "length": [4000, 4000, 4000, 7],
            "batch": [8],
            "until": [0, 3, 3, 2**62],
            "version": [PROTOCOL_VERSION, cluster.members.version, cluster.lending.reserves._versions],
            "model": [MODEL, MODEL, []],
            "public_key": ["k" * 40],
            "pid": [100, 101, 200],
            "leases item": list(cluster.leases.open)[:6],
            "begun item": list(cluster.leases.open)[:6],
            "number": [cluster.checkpointing.number, cluster.checkpointing.number + 1],
            "issued": [cluster.leases.issued, 0],
            "state": ["joining", "ready", "done", "drained"],
            "elected": [None, View(1, cluster.members.version, [0, 1], own=True)],
            "leaving": [False, False, False, True],
            "phase": [0, 0, 1],
        }
        return choices.get(name, [])

    def _lease(self, rank: int) -> Lease:
        """Return a lease: an open one, or one from what is set aside for a worker."""
        leases = self.cluster.leases
        held = [lease for _, lease in leases.open.values()]
        held += [Lease(own_lease(rank, self.rng.randrange(4)), *span) for span in leases.reserved.get(rank, [])]
        return self.rng.choice(held) if held else Lease(0, 0, 0, 8)


@functools.cache
def _fields(kind: type[msgspec.Struct]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return info.fields

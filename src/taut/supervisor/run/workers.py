"""Who is in the run: ranks, states, the roster, and who gives the run's state to whom. Pure."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field

import msgspec

from taut.core.failure_detector import Detector
from taut.core.messages import PROTOCOL_VERSION, Gone, Hello, Member, Roster, Statistics, TensorSpec
from taut.supervisor.view import WorkerRow, WorkerState


def name_hash(connection: bytes) -> bytes:
    """By which a connection is known again: its name is a secret, and is not kept."""
    return hashlib.blake2b(connection, digest_size=16, person=b"taut-connection").digest()


FOUNDER = -1  # as a donor: the worker's own initial state is the run's


@dataclass(slots=True)
class Worker:
    """One admitted worker. It stays in the table when it is gone: ranks are never used twice."""

    rank: int
    connection: bytes
    hello: Hello
    detector: Detector
    state: WorkerState = "joining"
    donor: int | None = None  # what it was told; None: not told yet
    statistics: Statistics = field(default_factory=Statistics)
    sketch: Sequence[float] = ()
    phase: int = 0  # it has made the steps of all phases before this one
    first_phase: int = 0  # it begins in this one: the run's present one, until it has the state
    drain_told: bool = False
    leave: str | None = None  # it was told to go, for this reason
    refused: int = 0  # messages of it that others could not take
    heard: int = 0  # messages of it that came, without heartbeats
    lost: int = 0  # how often some did not come, in this life of the supervisor's
    began: bool = False  # it has made a step, or asked for data
    ended: bool = False  # its process is known to have ended after the verdict
    calm_s: float = -math.inf  # when it last said that it hears the supervisor well
    party: bool = True  # in a run in lock-step: it may have gone on with others, whom we do not hear
    expelled: bool = False  # given up while it might still live: it is told so when it speaks
    may_return: bool = False  # it was given up for its silence alone
    without: tuple[int, ...] = ()  # these lied to it: it brings nothing of theirs along when it comes back
    successor: int | None = None  # the rank under which its process came back
    fruitless: int = 0  # how often running its process came back and made no step before it was given up again
    reason: str = ""
    name_hash: bytes = b""  # of its connection, where the supervisor came back and has not heard of it since

    @property
    def live(self) -> bool:
        return self.state != "gone"

    @property
    def has_state(self) -> bool:
        return self.state not in ("joining", "gone")

    @property
    def judged(self) -> bool:
        """Whether its silence means anything: after the verdict workers go without a word."""
        return self.state not in ("gone", "finished")

    def row(self, now: float) -> WorkerRow:
        suspicion = self.detector.phi(now) if self.judged else 0.0
        hello = self.hello
        return WorkerRow(
            self.rank, hello.host, hello.pid, self.state, self.statistics, suspicion, self.reason, self.refused
        )


def refusal(hello: Hello, model: Sequence[TensorSpec] | None) -> str | None:
    """Why this process cannot be a worker of a run with this model (None: no model yet), or None when it
    can."""
    if hello.version != PROTOCOL_VERSION:
        return (
            f"protocol version {hello.version}: expected {PROTOCOL_VERSION}, the supervisor's; "
            "install the same version of taut on every machine"
        )
    if model is None:
        return None
    remedy = "start every worker of a run with the same script and the same arguments"
    for mine, theirs in zip(model, hello.model, strict=False):
        if mine != theirs:
            wanted = f"expected {_describe(mine)}, as in the first worker"
            return f"another model: {_describe(theirs)}: {wanted}; {remedy}"
    if len(model) != len(hello.model):
        longer, who = (model, "the first worker") if len(model) > len(hello.model) else (hello.model, "this one")
        extra = longer[min(len(model), len(hello.model))]
        return (
            f"another model: {len(hello.model)} tensors: expected {len(model)}, as in the first worker "
            f"(only {who} has {_describe(extra)}); {remedy}"
        )
    return None


def _describe(spec: TensorSpec) -> str:
    shape = "x".join(str(size) for size in spec.shape) or "scalar"
    layout = f" in memory order {spec.layout}" if spec.layout else ""
    return f"{spec.part} tensor {spec.name!r} of shape {shape} and type {spec.dtype}{layout}"


@dataclass(slots=True)
class Membership:
    """The table of workers. ``model`` is the first admitted worker's."""

    workers: dict[int, Worker] = field(default_factory=dict)
    by_connection: dict[bytes, int] = field(default_factory=dict)
    by_hash: dict[bytes, int] = field(default_factory=dict)  # of connections that were known in an earlier life
    model: Sequence[TensorSpec] | None = None
    version: int = 0
    view: int = 0  # number of the last membership that workers decided on by themselves

    def admit(self, connection: bytes, hello: Hello, now: float, phase: int = 0) -> Worker:
        """Give the next rank; ``phase``: the run's. All have the same model, which is kept once."""
        if self.model is None:
            self.model = hello.model
        hello = msgspec.structs.replace(hello, model=self.model)
        worker = Worker(len(self.workers), connection, hello, Detector(now), phase=phase, first_phase=phase)
        self.workers[worker.rank] = worker
        self.by_connection[connection] = worker.rank
        self.version += 1
        return worker

    def remove(self, worker: Worker, reason: str) -> None:
        worker.state, worker.reason = "gone", reason
        self.version += 1

    def move_on(self, phase: int) -> bool:
        """The run goes on to ``phase``: who has no state yet begins there. Whether there is anybody."""
        joiners = [worker for worker in self.workers.values() if worker.state == "joining"]
        for worker in joiners:
            worker.phase, worker.first_phase = max(worker.phase, phase), phase
        self.version += bool(joiners)
        return bool(joiners)

    def find(self, connection: bytes) -> Worker | None:
        rank = self.by_connection.get(connection)
        if rank is None and self.by_hash:
            rank = self._know_again(connection)
        return None if rank is None else self.workers[rank]

    def _know_again(self, connection: bytes) -> int | None:
        """A worker of the supervisor's earlier life speaks for the first time."""
        rank = self.by_hash.pop(name_hash(connection), None)
        if rank is not None:
            self.by_connection[connection] = rank
            self.workers[rank].connection = connection
        return rank

    def find_pid(self, pid: int, host: str) -> Worker | None:
        """The worker of this process. Process numbers repeat between hosts, so one on ``host`` is
        preferred, and a live one to one that is gone (numbers repeat in time, too)."""
        same = [worker for worker in self.workers.values() if worker.hello.pid == pid]
        return max(same, key=lambda one: (one.hello.host == host, one.live, one.rank), default=None)

    def succeeded(self, rank: int) -> Worker | None:
        """Return the worker under whose rank the process of worker ``rank`` came back last; None: it did not."""
        worker = self.workers.get(rank)
        while worker is not None and worker.successor is not None:
            worker = self.workers[worker.successor]
        return worker if worker is not None and worker.rank != rank else None

    def has_key(self, public_key: str) -> bool:
        """Whether a worker that is in the run, or may come back to it, has this key of its own."""
        may_come = (worker for worker in self.workers.values() if worker.live or worker.may_return)
        return any(worker.hello.public_key == public_key for worker in may_come)

    def live(self) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.live]

    def with_state(self) -> list[Worker]:
        return [worker for worker in self.workers.values() if worker.has_state]

    def rows(self, now: float) -> tuple[WorkerRow, ...]:
        """Everybody, as a display sees it."""
        return tuple(worker.row(now) for worker in self.workers.values())

    def roster(self) -> Roster:
        """Everybody, as all are to know it: who is in the run, and who is gone and why."""
        return Roster(
            version=self.version,
            members=[
                Member(worker.rank, worker.hello.address, worker.hello.public_key, worker.has_state, worker.first_phase)
                for worker in self.live()
            ],
            gone=[Gone(worker.rank, worker.reason) for worker in self.workers.values() if not worker.live],
            view=self.view,
        )

    def assign_donors(self, trained: bool, unheard: Set[int] = frozenset()) -> list[Worker]:
        """Decide who gives its state to each joining worker; returns those whose donor is new, to be told. ``unheard``:
        who may have died together with the supervisor, and is asked only where there is nobody else.

        The one with the fewest joiners gives, the lowest rank of equals. While nobody has the state and
        nothing was trained, the lowest-ranked joiner is the founder and the others wait for it. Call it
        after every change.
        """
        joiners = [worker for worker in self.workers.values() if worker.state == "joining"]
        givers = {worker.rank for worker in self.with_state()}
        if not givers:
            for worker in joiners:
                if worker.donor != FOUNDER:
                    worker.donor = None
            if trained or not joiners or any(worker.donor == FOUNDER for worker in joiners):
                return []
            joiners[0].donor = FOUNDER
            return [joiners[0]]
        load = Counter(worker.donor for worker in joiners if worker.donor in givers)
        able = givers - unheard or givers
        told = []
        for worker in joiners:
            # also a founder that was overtaken: somebody is ready with the state of a donor who died
            # meanwhile
            if worker.donor not in givers:
                worker.donor = min(able, key=lambda rank: (load[rank], rank))
                load[worker.donor] += 1
                told.append(worker)
        return told

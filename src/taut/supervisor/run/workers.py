"""The table of workers: ranks, states, the roster, and the donor of each joining worker. Pure."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set

import msgspec
from msgspec import Struct, field

from taut.core.failure_detector import Detector
from taut.core.messages import PROTOCOL_VERSION, Gone, Hello, HostUse, Member, Platform, Roster, Statistics, TensorSpec
from taut.supervisor.view import WorkerRow, WorkerState


def name_hash(connection: bytes) -> bytes:
    """Return the hash by which a connection is recognized: its name is a secret, and is not kept."""
    return hashlib.blake2b(connection, digest_size=16, person=b"taut-connection").digest()


FOUNDER = -1  # as a donor: the worker's own initial state is the run's


class WorkerEntry(Struct):
    """One admitted worker. It stays in the table when it is gone: ranks are never used twice."""

    rank: int
    connection: bytes
    hello: Hello
    detector: Detector
    state: WorkerState = "joining"
    donor: int | None = None  # that it was told; None: not told yet
    initial: str = ""  # hash of the initial state that its own comes from; empty: unknown
    statistics: Statistics = field(default_factory=Statistics)
    sketch: Sequence[float] = ()
    phase: int = 0  # it has made the steps of all phases before this one
    growths: int = 0  # how often its script has asked for a grown model
    first_phase: int = 0  # the phase that it begins in: the run's present one, until it has the state
    drain_told: bool = False
    leave: str | None = None  # the reason why it was told to leave
    paused: bool = False  # by the run's owner
    host_use: HostUse | None = None  # how busy its host is, as it said last
    sent_to: Mapping[int, int] = {}  # bytes, by the peer that got them, as it said last
    refused: int = 0  # messages of it that others refused
    heard: int = 0  # messages of it that arrived, without heartbeats
    lost: int = 0  # how often some did not arrive, since the supervisor's start
    began: bool = False  # it has made a step, or asked for data
    ended: bool = False  # its process is known to have ended after the verdict
    calm_s: float = -math.inf  # when it last said that it was calm
    party: bool = True  # in lock-step: it may have gone on with workers that are not heard
    expelled: bool = False  # removed while it may still live: it is told when it speaks
    may_return: bool = False  # it was evicted, and may rejoin
    without: tuple[int, ...] = ()  # liars whose updates it must not bring along when it rejoins
    successor: int | None = None  # the rank under which its process rejoined
    fruitless: int = 0  # how often in a row its process rejoined and made no step before the next eviction
    reason: str = ""
    name_hash: bytes = b""  # of its connection, until it speaks to a restarted supervisor

    @property
    def live(self) -> bool:
        return self.state != "gone"

    @property
    def has_state(self) -> bool:
        return self.state not in ("joining", "gone")

    @property
    def judged(self) -> bool:
        """Return whether its silence means anything: after the verdict workers end without a message."""
        return self.state not in ("gone", "finished")

    def row(self, now: float) -> WorkerRow:
        suspicion = self.detector.phi(now) if self.judged else 0.0
        hello, known = (
            self.hello,
            (self.statistics, suspicion, self.reason, self.refused, self.paused, self.host_use, self.sent_to),
        )
        return WorkerRow(self.rank, hello.host, hello.pid, self.state, *known)


def refusal(hello: Hello, model: Sequence[TensorSpec] | None) -> str | None:
    """Return why this process cannot be a worker of a run with this model (None: no model yet), or None if it can."""
    if hello.version != PROTOCOL_VERSION:
        return (
            f"protocol version {hello.version}: expected {PROTOCOL_VERSION}, the supervisor's; "
            "install the same version of taut on every machine"
        )
    return None if model is None else model_differs(model, hello.model)


def model_differs(model: Sequence[TensorSpec], given: Sequence[TensorSpec]) -> str | None:
    """Return how a worker's model differs from the run's ``model``, in words; None if it does not."""
    remedy = "start every worker of a run with the same script and the same arguments"
    for mine, theirs in zip(model, given, strict=False):
        if mine != theirs:
            wanted = f"expected {_describe(mine)}, as in the first worker"
            return f"another model: {_describe(theirs)}: {wanted}; {remedy}"
    if len(model) != len(given):
        longer, who = (model, "the first worker") if len(model) > len(given) else (given, "this one")
        extra = longer[min(len(model), len(given))]
        return (
            f"another model: {len(given)} tensors: expected {len(model)}, as in the first worker "
            f"(only {who} has {_describe(extra)}); {remedy}"
        )
    return None


def platform_differs(mine: Platform, first: Platform) -> str:
    """Return how a worker's platform differs from that of the run's first worker, in words; else an empty text.

    >>> platform_differs(Platform(python="3.12.1", torch="2.13.0"), Platform(python="3.11.7", torch="2.9.1"))
    'Python 3.12.1 (3.11.7), torch 2.13.0 (2.9.1)'
    >>> platform_differs(Platform(python="3.11.9", system="Linux"), Platform(python="3.11.7", system="Linux"))
    ''
    >>> platform_differs(Platform(script="a.py:01"), Platform(script="b.py:01"))
    ''
    >>> platform_differs(Platform(script="train.py:02"), Platform(script="train.py:01"))
    'script train.py:02 (train.py:01)'
    """
    text = [each.script.rpartition(":")[2] for each in (mine, first)]
    minor = [".".join(each.python.split(".")[:2]) for each in (mine, first)]
    pairs = [
        ("taut", mine.taut, first.taut),
        ("Python", *((mine.python, first.python) if minor[0] != minor[1] else ("", ""))),
        ("torch", mine.torch, first.torch),
        ("system", mine.system, first.system),
        ("script", *((mine.script, first.script) if text[0] != text[1] and all(text) else ("", ""))),
    ]
    return ", ".join(f"{name} {here} ({there})" for name, here, there in pairs if here != there)


def _describe(spec: TensorSpec) -> str:
    shape = "x".join(str(size) for size in spec.shape) or "scalar"
    layout = f" in memory order {spec.layout}" if spec.layout else ""
    return f"{spec.part} tensor {spec.name!r} of shape {shape} and type {spec.dtype}{layout}"


class WorkerTable(Struct):
    """All workers. ``model`` is the first admitted worker's."""

    workers: dict[int, WorkerEntry] = {}
    by_connection: dict[bytes, int] = {}
    by_hash: dict[bytes, int] = {}  # of connections before the supervisor's restart
    model: Sequence[TensorSpec] | None = None
    version: int = 0
    view: int = 0  # number of the last election
    share_initial: bool = True  # equal initial states need not be sent; of a resumed run they are not the run's

    def admit(self, connection: bytes, hello: Hello, now: float, phase: int = 0) -> WorkerEntry:
        """Give the next rank; ``phase``: the run's. All have the same model, which is kept once."""
        if self.model is None:
            self.model = hello.model
        hello = msgspec.structs.replace(hello, model=self.model)
        worker = WorkerEntry(len(self.workers), connection, hello, Detector(now), phase=phase, first_phase=phase)
        self.workers[worker.rank] = worker
        self.by_connection[connection] = worker.rank
        self.version += 1
        return worker

    def remove(self, worker: WorkerEntry, reason: str) -> None:
        worker.state, worker.reason = "gone", reason
        self.version += 1

    def roundings(self) -> list[str]:
        """Return the different ways in which the processors of all workers so far round."""
        return sorted({worker.hello.platform.rounding for worker in self.workers.values() if worker.state != "joining"})

    def move_on(self, phase: int) -> bool:
        """Let workers without a state begin in ``phase``, which the run goes on to. Return whether there are any."""
        joiners = [worker for worker in self.workers.values() if worker.state == "joining"]
        for worker in joiners:
            worker.phase, worker.first_phase = max(worker.phase, phase), phase
        self.version += bool(joiners)
        return bool(joiners)

    def find(self, connection: bytes) -> WorkerEntry | None:
        rank = self.by_connection.get(connection)
        if rank is None and self.by_hash:  # it may speak for the first time since the supervisor's restart
            rank = self.by_hash.pop(name_hash(connection), None)
            if rank is not None:
                self.by_connection[connection] = rank
                self.workers[rank].connection = connection
        return None if rank is None else self.workers[rank]

    def find_pid(self, pid: int, host: str) -> WorkerEntry | None:
        """Return the worker of this process. Process numbers repeat between hosts, so one on ``host`` is preferred,
        and a live one to one that is gone (numbers repeat in time, too)."""
        same = [worker for worker in self.workers.values() if worker.hello.pid == pid]
        return max(same, key=lambda one: (one.hello.host == host, one.live, one.rank), default=None)

    def succeeded(self, rank: int) -> WorkerEntry | None:
        """Return the worker as which the process of worker ``rank`` rejoined last; None if it did not."""
        worker = self.workers.get(rank)
        while worker is not None and worker.successor is not None:
            worker = self.workers[worker.successor]
        return worker if worker is not None and worker.rank != rank else None

    def has_key(self, public_key: str) -> bool:
        """Return whether a worker that is in the run, or may rejoin, has this public key."""
        may_come = (worker for worker in self.workers.values() if worker.live or worker.may_return)
        return any(worker.hello.public_key == public_key for worker in may_come)

    def live(self) -> list[WorkerEntry]:
        return [worker for worker in self.workers.values() if worker.live]

    def with_state(self) -> list[WorkerEntry]:
        return [worker for worker in self.workers.values() if worker.has_state]

    def rows(self, now: float) -> tuple[WorkerRow, ...]:
        """Return all workers, for displays."""
        return tuple(worker.row(now) for worker in self.workers.values())

    def roster(self) -> Roster:
        """Return the roster: the workers in the run, and those that are gone with the reasons."""
        return Roster(
            version=self.version,
            members=[
                Member(worker.rank, worker.hello.address, worker.hello.public_key, worker.has_state, worker.first_phase)
                for worker in self.live()
            ],
            gone=[Gone(worker.rank, worker.reason) for worker in self.workers.values() if not worker.live],
            view=self.view,
        )

    def assign_donors(self, trained: bool, unheard: Set[int] = frozenset()) -> list[WorkerEntry]:
        """Choose a donor for each joining worker, and return the workers whose donor is new, to be told. ``unheard``:
        workers that may have died together with the supervisor, chosen only if there is no other.

        The worker with the fewest joiners is chosen, of equals the lowest rank. While no worker has the state and nothing
        was trained, the lowest-ranked joiner is the founder and the others wait for it; but those whose initial state is
        the founder's, by its hash, need no donor: they are founders, too. Others take it in a chain, each from the one
        before, which passes on what has come. Call it after every change.
        """
        joiners = [worker for worker in self.workers.values() if worker.state == "joining"]
        givers = {worker.rank for worker in self.with_state()}
        if not givers:
            for worker in joiners:
                if worker.donor != FOUNDER:
                    worker.donor = None
            if trained or not joiners:
                return []
            first = [] if any(worker.donor == FOUNDER for worker in joiners) else [self._founder(joiners[0])]
            return first + self._founders(joiners)
        founders = [] if trained else self._founders(joiners)
        same = set() if trained else {self.workers[rank].initial for rank in givers} - {""}
        able = givers - unheard or givers
        load = Counter(worker.donor for worker in joiners if worker.donor is not None)
        told = []
        for worker in joiners:
            # also a founder with another state, if another worker got the state of a donor that died meanwhile
            keeps = worker.donor in givers or (worker.donor == FOUNDER and worker.initial in same)
            if not keeps and not (not trained and self._in_chain(worker, givers)):
                worker.donor = min(able, key=lambda rank: (load[rank], rank))
                worker.initial = self.workers[worker.donor].initial
                load[worker.donor] += 1
                told.append(worker)
            if not trained and worker.donor != FOUNDER:
                able = able | {worker.rank}
        return founders + told

    def _in_chain(self, worker: WorkerEntry, givers: Set[int]) -> bool:
        """Return whether the worker's donor, or the donor's donor and so on, has the state."""
        seen: set[int] = set()
        while worker.donor is not None and worker.donor in self.workers and worker.donor not in seen:
            seen.add(worker.donor)
            if worker.donor in givers:
                return True
            worker = self.workers[worker.donor]
            if worker.state != "joining":
                return False
        return False

    def founding(self) -> bool:
        """Return whether a worker is about to have the initial state: its own, or one that a joiner passes on."""
        joiners = {worker.rank: worker for worker in self.workers.values() if worker.state == "joining"}
        return any(worker.donor == FOUNDER or worker.donor in joiners for worker in joiners.values())

    def _founders(self, joiners: Sequence[WorkerEntry]) -> list[WorkerEntry]:
        """Make founders of the joiners whose initial state, by its hash, is the one that others have."""
        others = (worker for worker in self.workers.values() if worker.has_state or worker.donor == FOUNDER)
        known = {worker.initial for worker in others if worker.live} - {""}
        alike = self.share_initial and len(known) == 1
        return [self._founder(one) for one in joiners if alike and one.donor is None and one.hello.initial in known]

    def _founder(self, worker: WorkerEntry) -> WorkerEntry:
        worker.donor, worker.initial = FOUNDER, worker.hello.initial
        return worker

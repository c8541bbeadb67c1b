"""Snapshots of a supervisor's state: ranks, leases, and the run's progress, as bytes for its store. Pure.

They hold no secret. A connection's name is one (with it, another process could speak for the worker), so only its hash is
kept, by which a worker on the same connection is recognized.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from taut.core.early_stopping import EarlyStopping
from taut.core.failure_detector import Detector
from taut.core.messages import Hello, Lease, Platform, Statistics, TensorSpec
from taut.core.sample_ranges import Span
from taut.errors import StorageFailed
from taut.supervisor.data.lease_wal import unpack
from taut.supervisor.data.leases import Leases
from taut.supervisor.data.passes import Pass
from taut.supervisor.faults.memberships import AnnouncedMembership
from taut.supervisor.faults.reconcile import replay
from taut.supervisor.run.cluster import Cluster
from taut.supervisor.run.plan import RunPlan
from taut.supervisor.run.workers import WorkerEntry, name_hash
from taut.supervisor.view import WorkerState

VERSION = 3
UNKNOWN = 1 << 20  # rosters and leases that may have followed the snapshot, if the disk failed


# Fields of workers, leases and the ledger that a snapshot has under the same names.
_SAME = [
    "rank",
    "state",
    "donor",
    "statistics",
    "phase",
    "drain_told",
    "expelled",
    "reason",
    "may_return",
    "first_phase",
    "paused",
]
_LEASES = ["passes", "returned", "samples_again", "issued", "untouched", "reserved"]
_LEDGER = ["lost", "failures", "script_failed", "phase", "growths", "rate", "slack", "steered"]


class WorkerSnapshot(msgspec.Struct, frozen=True, array_like=True):
    rank: int
    name_hash: bytes
    address: str
    public_key: str
    host: str
    pid: int
    protocol: int
    state: WorkerState
    donor: int | None
    statistics: Statistics
    phase: int
    drain_told: bool
    expelled: bool
    reason: str
    may_return: bool
    rhythm: list[int]  # intervals of its heartbeats
    first_phase: int = 0
    platform: Platform = Platform()
    paused: bool = False


class LeaseSnapshot(msgspec.Struct, frozen=True, array_like=True):
    passes: dict[int, Pass]  # by epoch
    open: list[tuple[int, Lease]]
    returned: list[tuple[int, int, int]]
    samples_again: int
    issued: int
    untouched: list[Span]
    reserved: dict[int, list[Span]]


class SupervisorSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """A supervisor's state. ``trained_s``: since the start of training; None before it."""

    version: int
    term: int
    roster: int
    model: list[TensorSpec] | None
    workers: list[WorkerSnapshot]
    leases: LeaseSnapshot
    trained_s: float | None
    lost: int
    failures: list[str]
    script_failed: bool
    phase: int
    drain: str | None
    view: int = 0
    told: list[AnnouncedMembership] = []  # live memberships
    early: EarlyStopping | None = None
    growths: int = 0
    rate: float = 1.0
    slack: float = 0.0
    steered: int = 0


def outline(cluster: Cluster) -> tuple[object, ...]:
    """Return the facts whose change needs a snapshot at once, before any worker is told: the version of the roster,
    whether the run has started, its phase, why it is drained, and what its owner has changed."""
    ledger = cluster.ledger
    return cluster.members.version, ledger.started_s is None, ledger.phase, cluster.ending.reason, ledger.steered


def keep(cluster: Cluster, now: float) -> bytes:
    """Return the run's snapshot as bytes."""
    members, leases, ledger = cluster.members, cluster.leases, cluster.ledger
    kept = SupervisorSnapshot(
        version=VERSION,
        term=cluster.term,
        roster=members.version,
        model=list(members.model) if members.model is not None else None,
        workers=[_kept(worker) for worker in members.workers.values()],
        leases=LeaseSnapshot(open=list(leases.open.values()), **{name: getattr(leases, name) for name in _LEASES}),
        trained_s=None if ledger.started_s is None else now - ledger.started_s,
        drain=cluster.ending.reason,
        view=members.view,
        told=cluster.admission.memberships.told,
        early=cluster.early,
        **{name: getattr(ledger, name) for name in _LEDGER},
    )
    return msgspec.msgpack.encode(kept)


def recall(
    plan: RunPlan, data: bytes, term: int, now: float, ahead: Sequence[bytes] = (), away_s: float = 0.0
) -> Cluster:
    """Return the run from a snapshot and the entries after it (``ahead``), for a supervisor of ``term``; ``away_s``:
    since the snapshot. No worker has spoken yet."""
    try:
        kept = msgspec.msgpack.decode(data, type=SupervisorSnapshot)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StorageFailed(f"what the supervisor kept of the run cannot be read: {error}") from None
    if kept.version != VERSION:
        raise StorageFailed(f"the run was kept in form {kept.version}; this version of taut reads {VERSION}")
    cluster = Cluster(plan, now, term)
    members = cluster.members
    # Workers may know later versions than the snapshot's, and ignore rosters that are not later than those.
    members.model, members.version, members.view = kept.model, kept.roster + UNKNOWN, kept.view
    cluster.admission.memberships.told.extend(kept.told)
    for each in kept.workers:
        worker = _recalled(each, kept.model or [], now)
        members.workers[worker.rank] = worker
        members.by_hash[each.name_hash] = worker.rank
    _recall_leases(cluster.leases, kept.leases, ahead)
    ledger = cluster.ledger
    ledger.started_s = None if kept.trained_s is None else now - away_s - kept.trained_s
    for name in _LEDGER:
        setattr(ledger, name, getattr(kept, name))
    if kept.early is not None:
        for name in ("best", "step", "since", "asked"):
            setattr(cluster.early, name, getattr(kept.early, name))
    cluster.ending.reason = kept.drain
    if kept.drain is not None:
        cluster.ending.decide()
    cluster.recovering = True
    cluster.admission.awaited.update(worker.rank for worker in members.live())
    return cluster


def _kept(worker: WorkerEntry) -> WorkerSnapshot:
    hello = worker.hello
    return WorkerSnapshot(
        name_hash=worker.name_hash or name_hash(worker.connection),
        protocol=hello.version,
        **{name: getattr(hello, name) for name in ("address", "public_key", "host", "pid")},
        platform=hello.platform,
        rhythm=worker.detector.kept(),
        **{name: getattr(worker, name) for name in _SAME},
    )


def _recalled(kept: WorkerSnapshot, model: list[TensorSpec], now: float) -> WorkerEntry:
    hello = Hello(kept.protocol, model, kept.address, kept.public_key, kept.host, kept.pid, platform=kept.platform)
    same = {name: getattr(kept, name) for name in _SAME}
    worker = WorkerEntry(
        connection=b"", hello=hello, detector=Detector.restored(now, kept.rhythm), name_hash=kept.name_hash, **same
    )
    # After the verdict workers wait for the model to be saved: they will send their state, and get a new verdict.
    worker.state = "done" if kept.state in ("drained", "finished") else kept.state
    return worker


def _recall_leases(leases: Leases, kept: LeaseSnapshot, ahead: Sequence[bytes]) -> None:
    for name in _LEASES:
        setattr(leases, name, getattr(kept, name))
    leases.open.update({lease.lease: (rank, lease) for rank, lease in kept.open})
    for entries in ahead:
        for entry in unpack(entries):
            replay(entry, leases)
    leases.log.clear()  # it is in the store already
    leases.issued += UNKNOWN

"""What a supervisor must not forget: ranks, leases, and how far the run is, as bytes for its store. Pure.

No secret is among it. A connection's name is one (who knows it can speak for the worker), so only its hash is kept: a
worker that speaks again over the same connection is known by that.
"""

from __future__ import annotations

import msgspec

from taut.core.detector import Detector
from taut.core.messages import Hello, Lease, Statistics, TensorSpec
from taut.errors import StorageFailed
from taut.supervisor.cluster import Cluster
from taut.supervisor.leases import Leases, Pass
from taut.supervisor.membership import Worker, name_hash
from taut.supervisor.recovery import Recovery
from taut.supervisor.roll import Ledger, RunPlan
from taut.supervisor.view import WorkerState

VERSION = 1
ROSTERS_UNKNOWN = 1 << 20  # versions that may have followed the one that was kept: far more than a second can have


class KeptWorker(msgspec.Struct, frozen=True, array_like=True):
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
    may_return: bool = False


class KeptLeases(msgspec.Struct, frozen=True, array_like=True):
    passes: dict[int, tuple[int, int, int]]  # epoch -> length, dealt, done
    open: list[tuple[int, Lease]]
    returned: list[tuple[int, int, int]]
    samples_again: int
    issued: int
    untouched: int = 0


class KeptRecovery(msgspec.Struct, frozen=True, array_like=True):
    """Of a supervisor that is coming back: what it knew before any worker spoke, and what they told since."""

    dealt: dict[int, int]
    heard: dict[int, list[tuple[int, int]]]
    issued: int


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """``trained_s``: since the start of training; None before it."""

    version: int
    term: int
    roster: int
    model: list[TensorSpec] | None
    workers: list[KeptWorker]
    leases: KeptLeases
    trained_s: float | None
    lost: int
    failures: list[str]
    script_failed: bool
    phase: int
    drain: str | None
    recovery: KeptRecovery | None = None


def keep(cluster: Cluster, now: float) -> bytes:
    """The run as of now."""
    members, leases, ledger, recovery = cluster.members, cluster.leases, cluster.ledger, cluster.recovery
    kept = Kept(
        VERSION,
        cluster.term,
        members.version,
        list(members.model) if members.model is not None else None,
        [_kept(worker) for worker in members.workers.values()],
        KeptLeases(
            {epoch: (each.length, each.dealt, each.done) for epoch, each in leases.passes.items()},
            list(leases.open.values()),
            list(leases.returned),
            leases.samples_again,
            leases.issued,
            leases.untouched,
        ),
        None if ledger.started_s is None else now - ledger.started_s,
        ledger.lost,
        list(ledger.failures),
        ledger.script_failed,
        ledger.phase,
        cluster.ending.reason,
        None if recovery is None else KeptRecovery(recovery.dealt, recovery.heard, recovery.issued),
    )
    return msgspec.msgpack.encode(kept)


def recall(plan: RunPlan, data: bytes, term: int, now: float) -> Cluster:
    """The run as it was kept, for a supervisor in its life ``term``. Nothing is decided before every worker that was in
    it has said where it stands, or is given up."""
    try:
        kept = msgspec.msgpack.decode(data, type=Kept)
    except msgspec.DecodeError as error:
        raise StorageFailed(f"what the supervisor kept of the run cannot be read: {error}") from None
    if kept.version != VERSION:
        raise StorageFailed(f"the run was kept in form {kept.version}; this version of taut reads {VERSION}")
    cluster = Cluster(plan, now, term)
    members = cluster.members
    # Workers may have heard of later versions than the one that was kept, and pass over what is not later than those.
    members.model, members.version = kept.model, kept.roster + ROSTERS_UNKNOWN
    for each in kept.workers:
        worker = _recalled(each, kept.model or [], now)
        members.workers[worker.rank] = worker
        members.by_hash[each.name_hash] = worker.rank
    cluster.leases.passes.update({epoch: Pass(*figures) for epoch, figures in kept.leases.passes.items()})
    _recall_leases(cluster.leases, kept.leases)
    _recall_ledger(cluster.ledger, kept, now)
    cluster.ending.reason = kept.drain
    cluster.recovery, cluster.roll.silent = Recovery.begin(cluster.members, cluster.leases), True
    if kept.recovery is not None:  # it died while it was coming back
        known, heard, issued = kept.recovery.dealt, kept.recovery.heard, kept.recovery.issued
        cluster.recovery.dealt, cluster.recovery.heard, cluster.recovery.issued = known, heard, issued
    return cluster


def _kept(worker: Worker) -> KeptWorker:
    hello = worker.hello
    return KeptWorker(
        worker.rank,
        worker.name_hash or name_hash(worker.connection),
        hello.address,
        hello.public_key,
        hello.host,
        hello.pid,
        hello.version,
        worker.state,
        worker.donor,
        worker.statistics,
        worker.phase,
        worker.drain_told,
        worker.expelled,
        worker.reason,
        worker.may_return,
    )


def _recalled(kept: KeptWorker, model: list[TensorSpec], now: float) -> Worker:
    hello = Hello(kept.protocol, model, kept.address, kept.public_key, kept.host, kept.pid)
    # After the verdict workers wait for the model to be saved: they will say where they stand, and all is judged anew.
    state: WorkerState = "done" if kept.state in ("drained", "finished") else kept.state
    return Worker(
        kept.rank,
        b"",
        hello,
        Detector(now),
        state,
        kept.donor,
        kept.statistics,
        phase=kept.phase,
        drain_told=kept.drain_told,
        expelled=kept.expelled,
        reason=kept.reason,
        may_return=kept.may_return,
        name_hash=kept.name_hash,
    )


def _recall_leases(leases: Leases, kept: KeptLeases) -> None:
    leases.open.update({lease.lease: (rank, lease) for rank, lease in kept.open})
    leases.returned.extend(kept.returned)
    leases.samples_again, leases.issued, leases.untouched = kept.samples_again, kept.issued, kept.untouched


def _recall_ledger(ledger: Ledger, kept: Kept, now: float) -> None:
    ledger.started_s = None if kept.trained_s is None else now - kept.trained_s
    ledger.lost, ledger.phase = kept.lost, kept.phase
    ledger.failures.extend(kept.failures)
    ledger.script_failed = kept.script_failed

"""What an admitted worker says, one case per message, and what it is reminded of. Pure; cluster.py drives it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taut.core.messages import (
    CheckpointBegun,
    CheckpointDone,
    Digest,
    Done,
    Donor,
    Drain,
    Failed,
    Heartbeat,
    LeaseDone,
    LeaseRequest,
    LeaseTaken,
    Leave,
    NextPhase,
    PhaseDone,
    Pulse,
    Ready,
    ReserveSeen,
    Returned,
    Start,
    Upload,
    WorkerMessage,
)
from taut.supervisor.checkpoints.schedule import Checkpointing
from taut.supervisor.data.lease_server import LeaseServer
from taut.supervisor.data.released import settle as settle_released
from taut.supervisor.faults.expulsion import ExpulsionPolicy
from taut.supervisor.faults.follow_election import hear, settle
from taut.supervisor.faults.reconcile import reconcile
from taut.supervisor.run.actions import Measured
from taut.supervisor.run.admission import Admission
from taut.supervisor.run.lifecycle import Lifecycle
from taut.supervisor.run.workers import Worker


@dataclass(slots=True)
class MessageHandlers:
    """Tells each message to whom it concerns."""

    roll: Admission
    course: Lifecycle
    lending: LeaseServer
    discipline: ExpulsionPolicy
    checkpointing: Checkpointing

    def said(  # noqa: PLR0912  # one case per message
        self, worker: Worker, message: WorkerMessage, payloads: Sequence[bytes], now: float
    ) -> None:
        if isinstance(message, LeaseRequest | LeaseTaken | LeaseDone | PhaseDone | Done | Digest):
            worker.began = True
        match message:
            case Heartbeat():
                self._beat(worker, message, now)
            case Returned():
                self._returned(worker, message, now)
            case Ready(phase) if worker.state == "joining" and phase == worker.first_phase:
                worker.calm_s = now  # it cannot have voted: nobody has told it yet who is in the run with it
                self._ready(worker)
            case LeaseRequest() if worker.rank in self.roll.awaited:
                pass  # said to the one before: it asks again once it has said where it stands
            case LeaseRequest(epoch):
                if not self.lending.asked(worker, message, now):
                    self.discipline.odd(f"worker {worker.rank}, which is {worker.state}, asked for pass {epoch}")
            case LeaseTaken():
                if not self.lending.taken(worker, message):
                    self.discipline.odd(f"worker {worker.rank} took {message.lease}, which is not set aside for it")
            case ReserveSeen(version, said):
                if said == worker.heard:
                    self.lending.reserves.seen(worker.rank, version)
            case LeaseDone():
                self.checkpointing.trained(worker.rank, message.leases)
                self.roll.leases.done(worker.rank, message.leases)
            case PhaseDone(phase):
                worker.phase = max(worker.phase, phase)
            case Done(leaving=True, begun=begun, said=said):
                self.roll.gone(worker, "left", now, failure=False, begun=begun if said == worker.heard else None)
            case Done(said=said) if said != worker.heard:
                pass  # something was lost before it: the next heartbeat shows that, and the worker says where it stands
            case Done(begun=begun) if worker.state in ("ready", "training"):
                self._done(worker, begun)
            case Failed(reason, unfit):
                leave = self.roll.unfit if unfit else self.roll.failed
                leave(worker, reason or "failed without a reason", now)
            case CheckpointBegun() | CheckpointDone():
                if not self.checkpointing.said(worker, message):
                    self.discipline.odd(f"{type(message).__name__} {message.number} from worker {worker.rank}")
            case Digest() | Upload():
                if not self.roll.ending.said(worker, message, payloads, now):
                    self.discipline.odd(f"{type(message).__name__} from worker {worker.rank}, which is {worker.state}")
            case _:
                pass  # Ready in a phase that is over, or Ready or Done said twice, or after the drain began: harmless

    def _beat(self, worker: Worker, message: Heartbeat, now: float) -> None:
        roll = self.roll
        if worker.detector.beat(now):
            self._remind(worker)
        worker.statistics, worker.sketch = message.statistics, message.sketch
        worker.began = worker.began or message.statistics.steps > 0
        self.discipline.complained(worker, message.complaints, now)
        self.discipline.disputed(worker, message.disputes, now)
        roll.outbox.add(Measured(worker.rank, message.statistics))
        if message.said != worker.heard:
            worker.heard, worker.lost = message.said, worker.lost + 1
            self.lending.reserves.doubtful.add(worker.rank)
        if roll.plan.elects or message.elected is not None:
            if not hear(roll, worker, message, now):
                self.discipline.refused(worker, "an election that cannot have been", now)
            if message.elected is not None:  # else it is soon enough with the next tick
                self.elections(now)
        roll.agreement.agreed(message.agreed)
        if message.calm:
            worker.calm_s = now
        told = roll.outbox.told.get(worker.connection, 0)
        roll.outbox.send(worker.connection, Pulse(roll.term, told, worker.lost, roll.leases.issued))

    def elections(self, now: float) -> None:
        """Follow workers who went on by themselves, as soon as it is clear that they did."""
        settle(self.roll, self.discipline, now)

    def _returned(self, worker: Worker, message: Returned, now: float) -> None:
        """After the supervisor came back: where this worker stands, and what it may have missed."""
        if message.rank != worker.rank:
            if self.roll.members.succeeded(message.rank) is worker:
                settle_released(self.roll.leases, message.rank, [(one.epoch, one.lo, one.hi) for one in message.done])
            else:
                self.discipline.odd(f"worker {worker.rank} returned as worker {message.rank}")
            return
        self.checkpointing.disturbed(worker)
        back = worker.rank in self.roll.awaited
        self.roll.awaited.discard(worker.rank)
        if back or not self.roll.ending.begun:
            over = message.state in ("done", "drained")  # then it begins nothing that may still come
            lost = reconcile(worker.rank, message, self.roll.leases, certain=back or over)
            if not back:
                again = f"; {lost} samples are dealt again" if lost else ""
                self.roll.outbox.record("mended", f"the connection to worker {worker.rank} had broken{again}")
        self.lending.returned(worker, now)
        worker.phase = max(worker.phase, message.phase, message.reached)
        if worker.state != "joining" or message.phase >= worker.first_phase:  # else it has to begin anew
            self._stands(worker, message)
        self._remind(worker)
        if worker.donor is not None and worker.state == "joining":
            self.roll.outbox.send(worker.connection, Donor(worker.donor))
        self.roll.ending.remind(worker)

    def _stands(self, worker: Worker, message: Returned) -> None:
        if message.state in ("ready", "training") and worker.state == "joining":
            self._ready(worker)
        elif message.state in ("done", "drained") and worker.state in ("joining", "ready", "training"):
            self._done(worker, [lease.lease for lease in message.holds])

    def _ready(self, worker: Worker) -> None:
        """It has the run's state."""
        worker.state = "ready"
        self.roll.ready()
        self.course.begin(worker)

    def _done(self, worker: Worker, begun: Sequence[int]) -> None:
        """Its loop is over: what it still has of leases is for others; but for those ``begun``, nobody touched it."""
        worker.state = "done"
        self.roll.held.pop(worker.rank, None)  # it asks for nothing any more
        if not self.roll.ending.begun:
            self.roll.leases.release(worker.rank, begun=begun)
            self.lending.gone(worker.rank)

    def _remind(self, worker: Worker) -> None:
        """It was silent for long: a connection that broke may have taken with it what it was told. All of
        this may be said twice."""
        self.roll.outbox.send(worker.connection, self.roll.roster())
        if worker.has_state and self.roll.ledger.started_s is not None:
            self.roll.outbox.send(worker.connection, Start())
        if self.roll.ledger.phase:
            self.roll.outbox.send(worker.connection, NextPhase(self.roll.ledger.phase, self.roll.members.version))
        self.checkpointing.remind(worker)
        if worker.leave is not None:
            self.roll.outbox.send(worker.connection, Leave(worker.leave))
        if worker.drain_told and self.roll.ending.reason is not None:
            self.roll.outbox.send(worker.connection, Drain(self.roll.ending.reason))

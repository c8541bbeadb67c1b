"""Handlers of an admitted worker's messages, one case per message, and reminders to it. Pure; cluster.py drives it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from taut.core import messages as msg
from taut.core.early_stopping import EarlyStopping
from taut.core.png import is_png
from taut.supervisor.checkpoints.schedule import Checkpointing
from taut.supervisor.data.lease_server import LeaseServer
from taut.supervisor.data.released import correct_count
from taut.supervisor.faults.expulsion import ExpulsionPolicy
from taut.supervisor.faults.follow_election import hear, judge_claims
from taut.supervisor.faults.reconcile import reconcile
from taut.supervisor.run.actions import KeepHostUse, KeepImage, KeepMetrics, KeepStatistics
from taut.supervisor.run.admission import Admission
from taut.supervisor.run.growing import Growing
from taut.supervisor.run.lifecycle import Lifecycle
from taut.supervisor.run.workers import WorkerEntry


class MessageHandlers(Struct):
    """Passes each message to the part of the supervisor that handles it."""

    admission: Admission
    lifecycle: Lifecycle
    lease_server: LeaseServer
    expulsion: ExpulsionPolicy
    checkpointing: Checkpointing
    early: EarlyStopping
    growing: Growing

    def said(  # noqa: PLR0912, PLR0915  # one case per message
        self, worker: WorkerEntry, message: msg.WorkerMessage, payloads: Sequence[bytes], now: float
    ) -> None:
        if isinstance(message, msg.LeaseRequest | msg.LeaseTaken | msg.LeaseDone | msg.PhaseDone | msg.Done | msg.Digest):
            worker.began = True
        match message:
            case msg.Heartbeat():
                self._beat(worker, message, now)
            case msg.Logged(points):
                self.admission.outbox.add(KeepMetrics(worker.rank, points))
            case msg.LoggedImage(step, name) if is_png(payloads[0]):
                self.admission.outbox.add(KeepImage(worker.rank, step, name, payloads[0]))
            case msg.Validated():
                self._validated(worker, message)
            case msg.EndRun(reason):
                self._asked_to_end(worker, reason)
            case msg.Returned():
                self._returned(worker, message, now)
            case msg.Ready(phase) if worker.state == "joining" and phase == worker.first_phase:
                worker.calm_s = now  # it cannot have voted: it knows no members yet
                self._ready(worker)
            case msg.LeaseRequest() if worker.rank in self.admission.awaited:
                pass  # sent to the previous supervisor: it asks again after its ``Returned``
            case msg.LeaseRequest(epoch):
                if not self.lease_server.asked(worker, message, now):
                    self.expulsion.odd(f"worker {worker.rank}, which is {worker.state}, asked for pass {epoch}")
            case msg.LeaseTaken():
                if not self.lease_server.taken(worker, message):
                    self.expulsion.odd(f"worker {worker.rank} took {message.lease}, which is not reserved for it")
            case msg.ReserveSeen(version, said):
                if said == worker.heard:
                    self.lease_server.reserves.seen(worker.rank, version)
            case msg.LeaseDone():
                self.checkpointing.trained(worker.rank, message.leases)
                self.admission.leases.done(worker.rank, message.leases)
            case msg.PhaseDone(phase, growths, model):
                worker.phase = max(worker.phase, phase)
                self.growing.asked(worker, growths, model)
            case msg.Done(leaving=True, begun=begun, said=said):
                self.admission.gone(worker, "left", now, failure=False, begun=begun if said == worker.heard else None)
            case msg.Done(said=said) if said != worker.heard:
                pass  # a message was lost before it: the next heartbeat shows that, and ``Returned`` follows
            case msg.Done(begun=begun) if worker.state in ("ready", "training"):
                self._done(worker, begun)
            case msg.Failed(reason, unfit):
                leave = self.admission.unfit if unfit else self.admission.failed
                leave(worker, reason or "failed without a reason", now)
            case msg.CheckpointBegun():
                self._expect(self.checkpointing.begun(worker, message), worker, message)
            case msg.CheckpointDone():
                self._expect(self.checkpointing.done(worker, message), worker, message)
            case msg.LoggedImage():
                self._expect(False, worker, message)
            case msg.Digest():
                self._expect(self.admission.ending.take_digest(worker, message, payloads), worker, message)
            case msg.Upload():
                self._expect(self.admission.ending.take_upload(worker, message, payloads, now), worker, message)
            case msg.HandedOver():
                self._expect(self.admission.ending.take_file(worker, message, now), worker, message)
            case _:
                pass  # Ready in an earlier phase, Ready or Done twice, or after the drain began: harmless

    def _expect(self, expected: bool, worker: WorkerEntry, message: msg.WorkerMessage) -> None:
        if not expected:
            self.expulsion.odd(f"{type(message).__name__} from worker {worker.rank}, which is {worker.state}")

    def _beat(self, worker: WorkerEntry, message: msg.Heartbeat, now: float) -> None:
        admission = self.admission
        if worker.detector.beat(now):
            self._remind(worker)
        worker.statistics, worker.sketch = message.statistics, message.sketch or worker.sketch
        worker.began = worker.began or message.statistics.steps > 0
        self.expulsion.complained(worker, message.complaints, now)
        self.expulsion.disputed(worker, message.disputes, now)
        admission.outbox.add(KeepStatistics(worker.rank, message.statistics))
        worker.sent_to = message.sent_to or worker.sent_to
        if message.host_use is not None:
            worker.host_use = message.host_use
            admission.outbox.add(KeepHostUse(worker.hello.host, message.host_use))
        if message.said != worker.heard:
            worker.heard, worker.lost = message.said, worker.lost + 1
            self.lease_server.reserves.doubtful.add(worker.rank)
        if admission.plan.elects or message.elected is not None:
            if not hear(admission, worker, message, now):
                self.expulsion.refused(worker, "an impossible election", now)
            if message.elected is not None:  # else the next tick does it
                judge_claims(admission, self.expulsion, now)
        admission.memberships.agreed(message.agreed)
        if message.calm:
            worker.calm_s = now
        told = admission.outbox.told.get(worker.connection, 0)
        admission.outbox.send(worker.connection, msg.Pulse(admission.term, told, worker.lost, admission.leases.issued))

    def _returned(self, worker: WorkerEntry, message: msg.Returned, now: float) -> None:
        """Reconcile with a worker's state, after a restart or a broken connection, and repeat what it may have missed."""
        if message.rank != worker.rank:
            if self.admission.members.succeeded(message.rank) is worker:
                correct_count(self.admission.leases, message.rank, [(one.epoch, one.lo, one.hi) for one in message.done])
            else:
                self.expulsion.odd(f"worker {worker.rank} returned as worker {message.rank}")
            return
        self.checkpointing.disturbed(worker)
        back = worker.rank in self.admission.awaited
        self.admission.awaited.discard(worker.rank)
        if back or not self.admission.ending.begun:
            over = message.state in ("done", "drained")  # then it begins no lease that may still arrive
            lost = reconcile(worker.rank, message, self.admission.leases, certain=back or over)
            if not back:
                again = f"; {lost} samples are leased again" if lost else ""
                self.admission.outbox.record("mended", f"the connection to worker {worker.rank} had broken{again}")
        self.lease_server.returned(worker, now)
        worker.phase = max(worker.phase, message.phase, message.reached)
        if worker.state != "joining" or message.phase >= worker.first_phase:  # else it must begin anew
            if message.state in ("ready", "training") and worker.state == "joining":
                self._ready(worker)
            elif message.state in ("done", "drained") and worker.state in ("joining", "ready", "training"):
                self._done(worker, [lease.lease for lease in message.holds])
        self._remind(worker)
        if worker.donor is not None and worker.state == "joining":
            self.admission.outbox.send(worker.connection, msg.Donor(worker.donor))
        self.admission.ending.remind(worker)

    def _validated(self, worker: WorkerEntry, message: msg.Validated) -> None:
        """Keep an evaluation's score. That of the main worker counts for early stopping."""
        outbox, after = self.admission.outbox, f"after {message.step} steps of worker {worker.rank}"
        outbox.add(KeepMetrics(worker.rank, [msg.MetricPoint(message.step, "validation", message.score)]))
        better = False
        if self._is_main(worker):
            better = self.early.heard(message.step, message.score, message.lower_is_better)
        if message.note:
            outbox.record("validation", f"{after}: {message.note}")
        else:
            score = "not finite" if message.score is None else f"{message.score:g}"
            best = ", the best so far" if better else ""
            outbox.record("validation", f"{score} {after}{best} ({message.took_s:.2f} s)")

    def _asked_to_end(self, worker: WorkerEntry, reason: str) -> None:
        """End the run if the main worker asks for it: workers' losses differ, and one of them must decide."""
        if self._is_main(worker) and not self.early.asked:
            self.early.asked = f"ended by the script: {reason}" if reason else "ended by the script"

    def _is_main(self, worker: WorkerEntry) -> bool:
        return bool(worker.rank == min((one.rank for one in self.admission.members.live()), default=worker.rank))

    def _ready(self, worker: WorkerEntry) -> None:
        worker.state = "ready"
        self.admission.ready()
        self.lifecycle.begin(worker)

    def _done(self, worker: WorkerEntry, begun: Sequence[int]) -> None:
        """Note that the worker is done, and put back its leases. Only those in ``begun`` may be partly trained on."""
        worker.state = "done"
        self.admission.held.pop(worker.rank, None)  # it needs no leases any more
        if not self.admission.ending.begun:
            self.admission.leases.release(worker.rank, begun=begun)
            self.lease_server.gone(worker.rank)

    def _remind(self, worker: WorkerEntry) -> None:
        """Repeat what the worker was told: it was silent for long, and a broken connection may have lost it. All of
        these messages may come twice."""
        admission, ledger, to = self.admission, self.admission.ledger, worker.connection
        admission.outbox.send(to, admission.roster())
        if worker.has_state and ledger.started_s is not None:
            admission.outbox.send(to, msg.Start())
        if ledger.phase:
            admission.outbox.send(to, msg.NextPhase(ledger.phase, admission.members.version, ledger.growths))
        self.checkpointing.remind(worker)
        admission.steer(worker)
        if worker.leave is not None:
            admission.outbox.send(to, msg.Leave(worker.leave))
        if worker.drain_told and admission.ending.reason is not None:
            admission.outbox.send(to, msg.Drain(admission.ending.reason, admission.ending.averages))

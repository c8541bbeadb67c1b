"""The run as a state machine: workers' messages, the engine's reports and the time go in, actions come out. No I/O.

Every public method takes the time as a number and returns the actions to carry out, in order. docs/supervisor.md
describes the protocol; messages are in ``taut.core.messages``.
"""

from __future__ import annotations

from collections.abc import Sequence

from taut.core import messages as msg
from taut.core.early_stopping import EarlyStopping
from taut.errors import Misuse
from taut.supervisor.checkpoints.schedule import Checkpointing
from taut.supervisor.data.lease_server import LeaseServer
from taut.supervisor.data.leases import Leases
from taut.supervisor.data.reserves import Reserves
from taut.supervisor.faults.eviction import Eviction
from taut.supervisor.faults.expulsion import ExpulsionPolicy
from taut.supervisor.faults.follow_election import judge_claims
from taut.supervisor.run.actions import Action, Outbox, RunFinished
from taut.supervisor.run.admission import Admission, Ledger, ProcessEnd
from taut.supervisor.run.ending import Ending
from taut.supervisor.run.growing import Growing
from taut.supervisor.run.handlers import MessageHandlers
from taut.supervisor.run.lifecycle import Lifecycle, outcome_of
from taut.supervisor.run.plan import RunPlan
from taut.supervisor.run.steering import Owner
from taut.supervisor.run.workers import WorkerEntry, WorkerTable
from taut.supervisor.view import Outcome, RunState

EXIT_GRACE_S = 0.25  # a process's last messages may arrive after the report of its end


class Cluster:
    """One run, from the first Hello to the outcome."""

    def __init__(self, plan: RunPlan, now: float, term: int = 0) -> None:
        self.plan, self.term = plan, term  # term: how often it was restarted
        self.recovering = False  # restarted, and some workers have not sent their state
        self.members = WorkerTable(share_initial=not plan.resumed)
        self.leases = Leases()
        self.ledger = Ledger()
        self.outbox = Outbox()
        self.ending = Ending(self.members, self.outbox, plan.finish, plan.agrees, plan.resync)
        self.admission = Admission(plan, self.members, self.leases, self.ledger, self.ending, self.outbox, term)
        self.lease_server = LeaseServer(self.admission, Reserves(self.leases, term))
        self.expulsion = ExpulsionPolicy(self.admission)
        self.eviction = Eviction(self.admission)
        self.checkpointing = Checkpointing(
            plan.checkpoint_every, self.members, self.leases, self.outbox, self.ledger, follows=plan.part > 0
        )
        self.lifecycle = Lifecycle(self.admission)
        self.growing = Growing(self.admission)
        self.owner = Owner(self.admission)
        stop = plan.early_stop
        self.early = EarlyStopping() if stop is None else EarlyStopping(stop.patience, stop.delta)
        self.handlers = MessageHandlers(
            self.admission,
            self.lifecycle,
            self.lease_server,
            self.expulsion,
            self.checkpointing,
            self.early,
            self.growing,
        )
        self.outcome: Outcome | None = None
        self._drains_later = ""  # the reason to drain as soon as no worker is about to rejoin
        self.began_s = now
        self._exits: list[ProcessEnd] = []

    # Events.

    def heard(self, connection: bytes, message: msg.WorkerMessage, payloads: Sequence[bytes], now: float) -> list[Action]:
        """Handle a message from a connection."""
        version = self.members.version
        try:
            self._hear(connection, message, payloads, now)
        finally:
            worker = self.members.find(connection)
            if worker is not None and not isinstance(message, msg.Heartbeat | msg.ReserveSeen):
                worker.heard += 1
        # Most messages change no worker's state, and there may be a thousand workers to check.
        if isinstance(message, msg.Heartbeat) and version == self.members.version:
            return self.outbox.take()
        if isinstance(message, msg.LeaseRequest | msg.LeaseDone | msg.LeaseTaken) and version == self.members.version:
            if self.admission.held and isinstance(message, msg.LeaseDone):
                self.lease_server.serve(now)
            return self.outbox.take()
        return self._advance(now)

    def _hear(self, connection: bytes, message: msg.WorkerMessage, payloads: Sequence[bytes], now: float) -> None:
        worker = self.members.find(connection)
        if isinstance(message, msg.Hello):
            self.admission.superseded(message, now)
            self.admission.hello(connection, message, now, closed=self.ending.begun or self.outcome is not None)
        elif worker is None:
            self.expulsion.odd(f"{type(message).__name__} from a connection that was never admitted")
        elif not worker.live:
            if worker.expelled:
                self.admission.send_expulsion(worker)
        else:
            worker.detector.seen(now)
            self.handlers.said(worker, message, payloads, now)

    def malformed(self, connection: bytes, why: str, now: float) -> list[Action]:
        """Handle bytes that are no message. A stranger is told: it may be another version of taut."""
        worker, who = self._sender(connection)
        self.expulsion.odd(f"malformed message from {who}: {why}")
        if worker is not None:
            self.expulsion.refused(worker, why, now)
        else:
            remedy = "is the same version of taut installed on every machine?"
            self.outbox.send(connection, msg.Refusal(f"the message could not be read: {why}; {remedy}"[:4000]))
        return self._advance(now)

    def mishandled(self, connection: bytes, message: msg.Message, trace: str, now: float) -> list[Action]:
        """Count a message on which a handler raised, by a bug of ours, as refused: who sends many such is expelled."""
        (worker, who), kind = self._sender(connection), type(message).__name__
        self.expulsion.odd(f"{kind} from {who} could not be handled, by a bug in taut: {trace}", most=4000)
        if worker is not None:
            self.expulsion.refused(worker, f"{kind} that could not be handled", now)
        return self.outbox.take()

    def _sender(self, connection: bytes) -> tuple[WorkerEntry | None, str]:
        worker = self.members.find(connection)
        return worker, "a stranger" if worker is None else f"worker {worker.rank}"

    def flooded(self, connection: bytes, excess: int, now: float) -> list[Action]:
        """Note that so many messages of a connection were dropped unread: it exceeds the rate limit."""
        worker = self.members.find(connection)
        if worker is not None:
            self.expulsion.refused(worker, "too many messages", now, 0, excess)
        return self._advance(now)

    def dismiss(self, rank: int, reason: str, now: float, expel: bool = False) -> list[Action]:
        """Let one worker leave in order; ``expel``: at once. Raise ``Misuse`` if this is impossible."""
        self.expulsion.dismiss(rank, reason, now, expel)
        return self._advance(now)

    def pause(self, rank: int, reason: str, now: float, paused: bool = True) -> list[Action]:
        """Let one worker make no step, or go on again. Raise ``Misuse`` if this is impossible."""
        self.owner.pause(rank, reason, paused)
        return self._advance(now)

    def tune(self, rate: float | None, slack: float | None, reason: str, now: float) -> list[Action]:
        """Change the learning rates or the slack of all workers. Raise ``Misuse`` if this is impossible."""
        self.owner.tune(rate, slack, reason)
        return self._advance(now)

    def tick(self, now: float) -> list[Action]:
        """Let time pass: evict silent workers and handle processes that ended."""
        due = [exit_ for exit_ in self._exits if exit_.due <= now]
        self._exits = [exit_ for exit_ in self._exits if exit_.due > now]
        for exit_ in due:
            if self.outcome is None:
                self.admission.ended(exit_, now)
        over = self.eviction.judge(now) if self.outcome is None else None
        if over is not None:
            self._fail(over, now)
        judge_claims(self.admission, self.expulsion, now)
        self.lease_server.balance(now)
        return self._advance(now)

    def closed(self, connection: bytes, now: float) -> None:
        """Note that a connection was closed from the other end, or broke, as when a process ends."""
        worker = self.members.find(connection)
        if worker is not None and worker.live:
            worker.detector.closed(now)

    def paused(self, seconds: float, now: float) -> None:
        """Discount a time in which the supervisor itself was stopped, asleep or busy: it was no worker's silence."""
        for worker in self.members.live():
            worker.detector.pause(seconds, now)

    def exited(self, pid: int, reason: str, clean: bool, now: float) -> list[Action]:
        """Note that the engine saw a process end."""
        self._exits.append(ProcessEnd(now + EXIT_GRACE_S, pid, reason, clean))
        return self._advance(now)

    def unreachable(self, connection: bytes, now: float) -> list[Action]:
        """Note that a message could not be sent. This matters only for a writer that was asked late: it is gone."""
        worker = self.members.find(connection)
        late = len(self.ending.tried) > 1 and self.ending.policy != "ensemble"  # of an ensemble all wait to be asked
        if worker is not None and worker is self.ending.writer and late:
            worker.ended = True
            self.ending.lost(worker, now)
        return self._advance(now)

    def drain(self, reason: str, now: float) -> list[Action]:
        """End the run in order, with a model, for ``reason``."""
        if self.outcome is None and self.expulsion.renewing(now):
            self._drains_later = self._drains_later or reason
        elif self.outcome is None:
            self.ending.begin(reason)
        return self._advance(now)

    def saved(self, path: str, error: str, now: float) -> list[Action]:
        """Note that the model is on disk at ``path``, or is not because of ``error``."""
        self.ending.saved(path, error, now)
        return self._advance(now)

    def checkpoint(self, now: float, reason: str = "") -> list[Action]:
        """Begin a checkpoint as soon as the one under way, if there is one, is complete. With a ``reason``: raise
        ``Misuse`` if the run has no checkpoints or does not train, and record who asked."""
        if reason:
            if self.plan.checkpoint_every is None:
                remedy = "begin the run with --checkpoint-every 5m"
                raise Misuse(f"a checkpoint of run {self.plan.run!r}", "a run that has checkpoints", remedy)
            if self.state != "training":
                raise Misuse(f"a checkpoint of a run that is {self.state}", "a run that trains")
            self.outbox.record("checkpoint", reason)
        self.checkpointing.hasten()
        return self._advance(now)

    def checkpointed(self, number: int, text: str, error: str, now: float) -> list[Action]:
        """Note that the manifest of a checkpoint is on disk, with ``text`` for the log, or why it is not (``error``)."""
        self.checkpointing.saved(number, text, error)
        return self._advance(now)

    def stop(self, reason: str, now: float) -> list[Action]:
        """End now, without a model. Nothing happens if the run is over already."""
        if self.outcome is None:
            self._fail(reason, now)
        return self.outbox.take()

    @property
    def state(self) -> RunState:
        if self.outcome is not None:
            return self.outcome.state
        if self.ending.verdict is not None:
            return "saving"
        if self.ending.begun:
            return "draining"
        return "waiting" if self.ledger.started_s is None else "training"

    def _advance(self, now: float) -> list[Action]:
        if self.recovering:
            self._recover()
        self.lease_server.sharers = len(self.members.with_state())
        if self.outcome is None:
            for worker in self.members.assign_donors(self.ledger.started_s is not None, self.admission.awaited):
                assert worker.donor is not None
                self.outbox.send(worker.connection, msg.Donor(worker.donor))
            self.lifecycle.start(now)
            self.lifecycle.next_phase()
            self.growing.advance(now)
            self.lease_server.serve(now)
            if not self.ending.begun and not self.recovering:  # else the contents of a checkpoint are unknown
                self.checkpointing.advance(now, self.ledger.started_s)
            why = self.lifecycle.deserted(now)
            if why is not None:
                self._fail(why, now)
        if self.outcome is None:
            self._drains_later = self._drains_later or self.early.reason
            live = self.members.live()
            done = self.ledger.started_s is not None and live and all(worker.state == "done" for worker in live)
            if (done or self._drains_later) and not self.expulsion.renewing(now):
                self.ending.begin(self._drains_later or "every worker is done")
            self.ending.check(now)
            if self.ending.over is not None:
                self._finish(*self.ending.over, now)
        self.admission.tell_late(now)
        return self.outbox.take()

    def _recover(self) -> None:
        """End the recovery if all workers have sent their state, or were evicted."""
        self.admission.awaited -= {rank for rank in self.admission.awaited if not self.members.workers[rank].live}
        if not self.admission.awaited:
            self.recovering = False
            self.outbox.record("recovered", f"the supervisor is back, with {len(self.members.live())} workers")

    def _fail(self, error: str, now: float) -> None:
        for worker in self.members.live():
            if worker.state != "finished":
                self.outbox.send(worker.connection, msg.Expulsion(error[:4000]))
        self._finish("", error, now)

    def _finish(self, path: str, error: str, now: float) -> None:
        self.outcome = outcome_of(self.admission, path, error, self.began_s, now)
        self.outbox.record(self.outcome.state, error or self.outcome.error or f"the model is in {path}")
        self.outbox.add(RunFinished(self.outcome))

"""The run as a state machine: what workers say, what the engine saw and the time go in, actions come out.
No I/O.

Every public method takes the time as a number and returns the actions to carry out, in order.
docs/supervisor.md tells the protocol; messages are in ``taut.core.messages``.
"""

from __future__ import annotations

from collections.abc import Sequence

from taut.core.messages import (
    Donor,
    Expulsion,
    Heartbeat,
    Hello,
    LeaseDone,
    LeaseRequest,
    LeaseTaken,
    Message,
    Refusal,
    ReserveSeen,
    WorkerMessage,
)
from taut.supervisor.checkpoints.schedule import Checkpointing
from taut.supervisor.data.lease_server import LeaseServer
from taut.supervisor.data.leases import Leases
from taut.supervisor.data.reserves import Reserves
from taut.supervisor.faults.eviction import Eviction
from taut.supervisor.faults.expulsion import ExpulsionPolicy
from taut.supervisor.run.actions import Action, Finished, Outbox
from taut.supervisor.run.admission import Admission, Exit, Ledger
from taut.supervisor.run.ending import Ending
from taut.supervisor.run.handlers import MessageHandlers
from taut.supervisor.run.lifecycle import Lifecycle
from taut.supervisor.run.outcome import outcome_of
from taut.supervisor.run.plan import RunPlan
from taut.supervisor.run.workers import Membership
from taut.supervisor.view import Outcome, RunState

EXIT_GRACE_S = 0.25  # a process's last words may arrive after the news of its end: judge it only then


class Cluster:
    """One run, from the first Hello to the outcome."""

    def __init__(self, plan: RunPlan, now: float, term: int = 0) -> None:
        self.plan, self.term = plan, term  # term counts the supervisor's lives
        self.recovering = False  # it came back, and not everybody has said where it stands
        self.members = Membership()
        self.leases = Leases()
        self.ledger = Ledger()
        self.outbox = Outbox()
        self.ending = Ending(self.members, self.outbox, plan.finish, plan.agrees)
        self.roll = Admission(plan, self.members, self.leases, self.ledger, self.ending, self.outbox, term)
        self.lending = LeaseServer(self.roll, Reserves(self.leases, term))
        self.discipline = ExpulsionPolicy(self.roll)
        self.silence = Eviction(self.roll)
        self.checkpointing = Checkpointing(plan.checkpoint_every, self.members, self.leases, self.outbox)
        self.course = Lifecycle(self.roll)
        self.hearing = MessageHandlers(self.roll, self.course, self.lending, self.discipline, self.checkpointing)
        self.outcome: Outcome | None = None
        self._drains_later = ""  # why, as soon as nobody is about to come back
        self.began_s = now
        self._exits: list[Exit] = []

    # -------------------------------------------------------------------------------------------- events in

    def heard(self, connection: bytes, message: WorkerMessage, payloads: Sequence[bytes], now: float) -> list[Action]:
        """A connection said something."""
        version = self.members.version
        try:
            self._hear(connection, message, payloads, now)
        finally:
            worker = self.members.find(connection)
            if worker is not None and not isinstance(message, Heartbeat | ReserveSeen):
                worker.heard += 1
        # Most of what comes changes nobody's standing, and there may be a thousand workers to look at.
        if isinstance(message, Heartbeat) and version == self.members.version:
            return self.outbox.take()
        if isinstance(message, LeaseRequest | LeaseDone | LeaseTaken) and version == self.members.version:
            if self.roll.held and isinstance(message, LeaseDone):
                self.lending.serve(now)
            return self.outbox.take()
        return self._settled(now)

    def _hear(self, connection: bytes, message: WorkerMessage, payloads: Sequence[bytes], now: float) -> None:
        worker = self.members.find(connection)
        if isinstance(message, Hello):
            self.roll.superseded(message, now)
            self.roll.hello(connection, message, now, closed=self.ending.begun or self.outcome is not None)
        elif worker is None:
            self.discipline.odd(f"{type(message).__name__} from a connection that was never admitted")
        elif not worker.live:
            if worker.expelled:
                self.roll.expel(worker)
        else:
            worker.detector.seen(now)
            self.hearing.said(worker, message, payloads, now)

    def malformed(self, connection: bytes, why: str, now: float) -> list[Action]:
        """A connection sent bytes that are no message. A stranger is told: it may be another version of
        taut."""
        worker = self.members.find(connection)
        who = "a stranger" if worker is None else f"worker {worker.rank}"
        self.discipline.odd(f"malformed message from {who}: {why}")
        if worker is not None:
            self.discipline.refused(worker, why, now)
        else:
            remedy = "is the same version of taut installed on every machine?"
            self.outbox.send(connection, Refusal(f"the message could not be read: {why}; {remedy}"[:4000]))
        return self._settled(now)

    def mishandled(self, connection: bytes, message: Message, trace: str, now: float) -> list[Action]:
        """Count a message on which a handler raised, by a bug of ours, as refused: who sends many such is expelled."""
        worker, kind = self.members.find(connection), type(message).__name__
        who = "a stranger" if worker is None else f"worker {worker.rank}"
        self.discipline.odd(f"{kind} from {who} could not be handled, by a bug in taut: {trace}", most=4000)
        if worker is not None:
            self.discipline.refused(worker, f"{kind} that could not be handled", now)
        return self.outbox.take()

    def flooded(self, connection: bytes, excess: int, now: float) -> list[Action]:
        """So many messages of a connection were dropped unread: it sends more than a worker has to say."""
        worker = self.members.find(connection)
        if worker is not None:
            self.discipline.refused(worker, "too many messages", now, 0, excess)
        return self._settled(now)

    def dismiss(self, rank: int, reason: str, now: float, expel: bool = False) -> list[Action]:
        """The user wants one worker to go, in order; ``expel``: at once. ``Misuse`` where that cannot be."""
        self.discipline.dismiss(rank, reason, now, expel)
        return self._settled(now)

    def tick(self, now: float) -> list[Action]:
        """Time passes: judge the silent and those whose process ended."""
        due = [exit_ for exit_ in self._exits if exit_.due <= now]
        self._exits = [exit_ for exit_ in self._exits if exit_.due > now]
        for exit_ in due:
            if self.outcome is None:
                self.roll.ended(exit_, now)
        over = self.silence.judge(now) if self.outcome is None else None
        if over is not None:
            self._fail(over, now)
        self.hearing.elections(now)
        self.lending.balance(now)
        return self._settled(now)

    def closed(self, connection: bytes, now: float) -> None:
        """A connection was closed from the other end, or broke. A process that ends takes its own with it."""
        worker = self.members.find(connection)
        if worker is not None and worker.live:
            worker.detector.closed(now)

    def paused(self, seconds: float, now: float) -> None:
        """The supervisor itself was away (stopped, asleep, busy): nobody's silence in that time counts."""
        for worker in self.members.live():
            worker.detector.pause(seconds, now)

    def exited(self, pid: int, reason: str, clean: bool, now: float) -> list[Action]:
        """The engine saw a process end."""
        self._exits.append(Exit(now + EXIT_GRACE_S, pid, reason, clean))
        return self._settled(now)

    def unreachable(self, connection: bytes, now: float) -> list[Action]:
        """A message could not be sent. Only for a writer that was asked late this settles something: it has
        gone."""
        worker = self.members.find(connection)
        late = len(self.ending.tried) > 1 and self.ending.policy != "ensemble"  # of an ensemble all wait to be asked
        if worker is not None and worker is self.ending.writer and late:
            worker.ended = True
            self.ending.lost(worker, now)
        return self._settled(now)

    def drain(self, reason: str, now: float) -> list[Action]:
        """The user wants the run to end in order, with a model."""
        if self.outcome is None and self.discipline.renewing(now):
            self._drains_later = self._drains_later or reason
        elif self.outcome is None:
            self.ending.begin(reason)
        return self._settled(now)

    def saved(self, path: str, error: str, now: float) -> list[Action]:
        """The model is on disk at ``path``, or is not because of ``error``."""
        self.ending.saved(path, error, now)
        return self._settled(now)

    def checkpointed(self, number: int, text: str, error: str, now: float) -> list[Action]:
        """The manifest of a checkpoint is on disk, as ``text`` tells, or is not because of ``error``."""
        self.checkpointing.saved(number, text, error)
        return self._settled(now)

    def stop(self, reason: str, now: float) -> list[Action]:
        """End now, without a model. Nothing happens when the run is over already."""
        if self.outcome is None:
            self._fail(reason, now)
        return self.outbox.take()

    # ----------------------------------------------------------------------------------------- what is seen

    @property
    def state(self) -> RunState:
        if self.outcome is not None:
            return self.outcome.state
        if self.ending.verdict is not None:
            return "saving"
        if self.ending.begun:
            return "draining"
        return "waiting" if self.ledger.started_s is None else "training"

    # ----------------------------------------------------------------------------------------- consequences

    def _settled(self, now: float) -> list[Action]:
        """Draw every consequence of what has just changed."""
        if self.recovering:
            self._recover()
        self.lending.sharers = len(self.members.with_state())
        if self.outcome is None:
            for worker in self.members.assign_donors(self.ledger.started_s is not None, self.roll.awaited):
                assert worker.donor is not None
                self.outbox.send(worker.connection, Donor(worker.donor))
            self.course.start(now)
            self.course.next_phase()
            self.lending.serve(now)
            if not self.ending.begun and not self.recovering:  # else nobody knows what a checkpoint would contain
                self.checkpointing.settle(now, self.ledger.started_s)
            why = self.course.deserted(now)
            if why is not None:
                self._fail(why, now)
        if self.outcome is None:
            live = self.members.live()
            done = self.ledger.started_s is not None and live and all(worker.state == "done" for worker in live)
            if (done or self._drains_later) and not self.discipline.renewing(now):
                self.ending.begin(self._drains_later or "every worker is done")
            self.ending.check(now)
            if self.ending.over is not None:
                self._finish(*self.ending.over, now)
        self.roll.tell_late(now)
        return self.outbox.take()

    def _recover(self) -> None:
        """Everybody has said where it stands, or was given up."""
        self.roll.awaited -= {rank for rank in self.roll.awaited if not self.members.workers[rank].live}
        if not self.roll.awaited:
            self.recovering = False
            self.outbox.record("recovered", f"the supervisor is back, with {len(self.members.live())} workers")

    def _fail(self, error: str, now: float) -> None:
        for worker in self.members.live():
            if worker.state != "finished":
                self.outbox.send(worker.connection, Expulsion(error[:4000]))
        self._finish("", error, now)

    def _finish(self, path: str, error: str, now: float) -> None:
        self.outcome = outcome_of(self.roll, path, error, self.began_s, now)
        self.outbox.record(self.outcome.state, error or self.outcome.error or f"the model is in {path}")
        self.outbox.add(Finished(self.outcome))

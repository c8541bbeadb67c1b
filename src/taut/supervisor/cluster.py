"""The run as a state machine: what workers say, what the engine saw and the time go in, actions come out.
No I/O.

Every public method takes the time as a number and returns the actions to carry out, in order.
docs/supervisor.md tells the protocol; messages are in ``taut.core.messages``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from taut.core.messages import (
    CheckpointBegun,
    CheckpointDone,
    Digest,
    Done,
    Donor,
    Drain,
    Expulsion,
    Failed,
    Heartbeat,
    Hello,
    LeaseDone,
    LeaseRequest,
    LeaseTaken,
    Leave,
    NextPhase,
    PhaseDone,
    Pulse,
    Ready,
    Refusal,
    ReserveSeen,
    Returned,
    Start,
    Upload,
    WorkerMessage,
)
from taut.supervisor.actions import Action, Finished, Measured, Outbox
from taut.supervisor.checkpointing import Checkpointing
from taut.supervisor.consensus import relative
from taut.supervisor.discipline import Discipline
from taut.supervisor.ending import Ending
from taut.supervisor.finish import why_differ
from taut.supervisor.leases import Leases
from taut.supervisor.lending import Lending
from taut.supervisor.membership import Membership, Worker
from taut.supervisor.recovery import reconcile
from taut.supervisor.reserves import Reserves
from taut.supervisor.roll import Exit, Ledger, Roll, RunPlan
from taut.supervisor.silence import Silence
from taut.supervisor.view import Outcome, RunState, WorkerRow

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
        self.roll = Roll(plan, self.members, self.leases, self.ledger, self.ending, self.outbox, term)
        self.lending = Lending(self.roll, Reserves(self.leases, term))
        self.discipline = Discipline(self.roll)
        self.silence = Silence(self.roll)
        self.checkpointing = Checkpointing(plan.checkpoint_every, self.members, self.leases, self.outbox)
        self.outcome: Outcome | None = None
        self.began_s = now
        self._exits: list[Exit] = []

    # -------------------------------------------------------------------------------------------- events in

    def heard(self, connection: bytes, message: WorkerMessage, payloads: Sequence[bytes], now: float) -> list[Action]:
        """A connection said something."""
        worker = self.members.find(connection)
        version = self.members.version
        if isinstance(message, Hello):
            self.roll.superseded(message, now)
            self.roll.hello(connection, message, now, closed=self.ending.begun or self.outcome is not None)
        elif worker is None:
            self._odd(f"{type(message).__name__} from a connection that was never admitted")
        elif not worker.live:
            if worker.expelled:
                self.roll.expel(worker)
        else:
            worker.detector.seen(now)
            self._said(worker, message, payloads, now)
        if not isinstance(message, Heartbeat | ReserveSeen) and (worker := self.members.find(connection)) is not None:
            worker.heard += 1
        # Most of what comes changes nobody's standing, and there may be a thousand workers to look at.
        if isinstance(message, Heartbeat) and version == self.members.version:
            return self.outbox.take()
        if isinstance(message, LeaseRequest | LeaseDone | LeaseTaken) and version == self.members.version:
            if self.roll.held and isinstance(message, LeaseDone):
                self.lending.serve(now)
            return self.outbox.take()
        return self._settled(now)

    def malformed(self, connection: bytes, why: str, now: float) -> list[Action]:
        """A connection sent bytes that are no message. A stranger is told: it may be another version of
        taut."""
        worker = self.members.find(connection)
        who = "a stranger" if worker is None else f"worker {worker.rank}"
        self._odd(f"malformed message from {who}: {why}")
        if worker is not None:
            self.discipline.refused(worker, why, now)
        else:
            remedy = "is the same version of taut installed on every machine?"
            self.outbox.send(connection, Refusal(f"the message could not be read: {why}; {remedy}"[:4000]))
        return self._settled(now)

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
        if self.outcome is None:
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

    @property
    def expected(self) -> int:
        """How many workers the start still waits for."""
        return 0 if self.ledger.started_s is not None else max(0, self._needed() - len(self.members.with_state()))

    def rows(self, now: float) -> tuple[WorkerRow, ...]:
        return tuple(worker.row(now) for worker in self.members.workers.values())

    def distance(self) -> float:
        """Consensus distance of the live replicas, relative; from the verdict on, of what was trained."""
        if self.ending.consensus is not None:
            return self.ending.consensus
        return relative(worker.sketch for worker in self.members.live())

    # ------------------------------------------------------------------------------------- what workers say

    def _said(  # noqa: PLR0912  # one case per message
        self, worker: Worker, message: WorkerMessage, payloads: Sequence[bytes], now: float
    ) -> None:
        match message:
            case Heartbeat():
                if worker.detector.beat(now):
                    self._remind(worker)
                worker.statistics, worker.sketch = message.statistics, message.sketch
                self.discipline.complained(worker, message.complaints, now)
                self.outbox.add(Measured(worker.rank, message.statistics))
                if message.said != worker.heard:
                    worker.heard, worker.lost = message.said, worker.lost + 1
                    self.lending.reserves.doubtful.add(worker.rank)
                told = self.outbox.told.get(worker.connection, 0)
                self.outbox.send(worker.connection, Pulse(self.term, told, worker.lost, self.leases.issued))
            case Returned():
                self._returned(worker, message, now)
            case Ready() if worker.state == "joining":
                worker.state = "ready"
                self.roll.ready()
                self._begin(worker)
            case LeaseRequest() if worker.rank in self.roll.awaited:
                pass  # said to the one before: it asks again once it has said where it stands
            case LeaseRequest():
                self.lending.request(worker, message, now)
            case LeaseTaken():
                if not self.lending.taken(worker, message):
                    self._odd(f"worker {worker.rank} took {message.lease}, which is not set aside for it")
            case ReserveSeen(version, said):
                if said == worker.heard:
                    self.lending.reserves.seen(worker.rank, version)
            case LeaseDone():
                self.checkpointing.trained(worker.rank, message.leases)
                self.leases.done(worker.rank, message.leases)
            case PhaseDone(phase):
                worker.phase = max(worker.phase, phase)
            case Done(leaving=True):
                self.roll.gone(worker, "left", now, failure=False)
            case Done() if worker.state in ("ready", "training"):
                self._done(worker)
            case Failed():
                self.roll.failed(worker, message.reason or "failed without a reason", now)
            case CheckpointBegun() | CheckpointDone():
                if not self.checkpointing.said(worker, message):
                    self._odd(f"{type(message).__name__} {message.number} from worker {worker.rank}")
            case Digest() | Upload():
                if not self.ending.said(worker, message, payloads, now):
                    self._odd(f"{type(message).__name__} from worker {worker.rank}, which is {worker.state}")
            case _:
                pass  # Ready or Done said twice, or after the drain began: harmless

    def _returned(self, worker: Worker, message: Returned, now: float) -> None:
        """After the supervisor came back: where this worker stands, and what it may have missed."""
        if message.rank != worker.rank:
            self._odd(f"worker {worker.rank} returned as worker {message.rank}")
            return
        self.checkpointing.disturbed(worker)
        back = worker.rank in self.roll.awaited
        self.roll.awaited.discard(worker.rank)
        if back or not self.ending.begun:
            lost = reconcile(worker.rank, message, self.leases, certain=back)
            if not back:
                again = f"; {lost} samples are dealt again" if lost else ""
                self.outbox.record("mended", f"the connection to worker {worker.rank} had broken{again}")
        self.lending.returned(worker, now)
        worker.phase = max(worker.phase, message.phase)
        self._stands(worker, message.state)
        self._remind(worker)
        if worker.donor is not None and worker.state == "joining":
            self.outbox.send(worker.connection, Donor(worker.donor))
        self.ending.remind(worker)

    def _stands(self, worker: Worker, state: str) -> None:
        if state in ("ready", "training") and worker.state == "joining":
            worker.state = "ready"
            self.roll.ready()
            self._begin(worker)
        elif state in ("done", "drained") and worker.state in ("joining", "ready", "training"):
            self._done(worker)

    def _done(self, worker: Worker) -> None:
        """Its loop is over: what it still has of leases is for others."""
        worker.state = "done"
        if not self.ending.begun:
            self.leases.release(worker.rank)
            self.lending.gone(worker.rank)

    def _begin(self, worker: Worker) -> None:
        """A worker has the state: let it train if the run is going, let it drain if the run is ending."""
        if self.ending.begun:
            self.ending.tell(worker)
        elif self.ledger.started_s is not None:
            if worker.state == "ready":  # a loop without a single sample is done before the start
                worker.state = "training"
            self.outbox.send(worker.connection, Start())

    def _remind(self, worker: Worker) -> None:
        """It was silent for long: a connection that broke may have taken with it what it was told. All of
        this may be said twice."""
        self.outbox.send(worker.connection, self.members.roster())
        if worker.has_state and self.ledger.started_s is not None:
            self.outbox.send(worker.connection, Start())
        if self.ledger.phase:
            self.outbox.send(worker.connection, NextPhase(self.ledger.phase))
        self.checkpointing.remind(worker)
        if worker.leave is not None:
            self.outbox.send(worker.connection, Leave(worker.leave))
        if worker.drain_told and self.ending.reason is not None:
            self.outbox.send(worker.connection, Drain(self.ending.reason))

    def _odd(self, text: str) -> None:
        """Count what should not have come. The first ones are recorded, then every hundredth: a broken
        client must not fill the disk."""
        self.ledger.oddities += 1
        if self.ledger.oddities <= 20 or self.ledger.oddities % 100 == 0:
            self.outbox.record("odd", f"{text[:500]} (number {self.ledger.oddities})")

    # ----------------------------------------------------------------------------------------- consequences

    def _needed(self) -> int:
        return max(1, self.plan.workers - self.ledger.lost)

    def _settled(self, now: float) -> list[Action]:
        """Draw every consequence of what has just changed."""
        if self.recovering:
            self._recover()
        self.lending.sharers = len(self.members.with_state())
        if self.outcome is None:
            for worker in self.members.assign_donors(self.ledger.started_s is not None, self.roll.awaited):
                assert worker.donor is not None
                self.outbox.send(worker.connection, Donor(worker.donor))
            self._maybe_start(now)
            self._maybe_next_phase()
            self.lending.serve(now)
            if not self.ending.begun and not self.recovering:  # else nobody knows what a checkpoint would contain
                self.checkpointing.settle(now, self.ledger.started_s)
            if self._deserted():
                self._fail(self._why_deserted(), now)
        if self.outcome is None:
            live = self.members.live()
            if self.ledger.started_s is not None and live and all(worker.state == "done" for worker in live):
                self.ending.begin("every worker is done")
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

    def _maybe_start(self, now: float) -> None:
        ready = self.members.with_state()
        if self.ledger.started_s is not None or self.ending.begun or len(ready) < self._needed():
            return
        self.ledger.started_s = now
        self.outbox.record("start", f"training starts with {len(ready)} of {self.plan.workers} workers")
        if self.plan.finish == "any" and not self.plan.agrees:
            given = f"strategy {self.plan.strategy!r} leaves replicas that differ, and finish=any takes the lowest rank's"
            self.outbox.record("finish", given)
        self.roll.started(now)
        for worker in ready:
            self._begin(worker)

    def _maybe_next_phase(self) -> None:
        """Announce the phase that everybody who still has data has come to."""
        busy = [worker for worker in self.members.with_state() if worker.state in ("ready", "training")]
        reached = min((worker.phase for worker in busy), default=0)
        if self.ending.begun or reached <= self.ledger.phase:
            return
        self.ledger.phase = reached
        self.outbox.record("phase", f"phase {reached} begins: everybody has made the steps of those before")
        for worker in self.members.with_state():
            self.outbox.send(worker.connection, NextPhase(reached))

    def _deserted(self) -> bool:
        """Nobody is left who could bring the run to an end, and nobody is to come."""
        if self.ending.verdict is not None or self.members.with_state():
            return False
        if self.ledger.started_s is not None:
            return True
        return not self.members.live() and (self.ending.begun or self.ledger.lost >= self.plan.workers)

    def _why_deserted(self) -> str:
        if self.ledger.failures:
            return f"no worker is left ({'; '.join(self.ledger.failures[-4:])})"
        if self.ending.begun:
            return f"{self.ending.reason}, before any worker was ready"
        return "every worker left before the end of the run, so nobody could write the model"

    def _fail(self, error: str, now: float) -> None:
        for worker in self.members.live():
            if worker.state != "finished":
                self.outbox.send(worker.connection, Expulsion(error[:4000]))
        self._finish("", error, now)

    def _finish(self, path: str, error: str, now: float) -> None:
        verdict = self.ending.verdict
        if verdict is not None and verdict.exact and not verdict.identical:
            error = error or why_differ(self.ending.digests, self.discipline.complaints.totals())
        failed = bool(error) or self.ledger.script_failed
        self.outcome = Outcome(
            state="finished" if path else "failed",
            exit_code=1 if failed else 0,
            identical=None if verdict is None else verdict.identical,
            exact=verdict is not None and verdict.exact,
            digest="" if verdict is None else verdict.digest,
            model=Path(path) if path else None,
            workers={row.rank: row for row in self.rows(now)},
            failures=tuple(self.ledger.failures),
            samples_again=self.leases.samples_again,
            samples_undone=self.leases.samples_undone,
            consensus=self.distance(),
            finish=self.plan.finish,
            writer=None if self.ending.writer is None else self.ending.writer.rank,
            validation=self.ending.validation,
            ensemble={rank: file for rank, (file, _) in self.ending.kept.items()},
            wall_s=(self.ending.judged_s or now) - (self.ledger.started_s or self.began_s),
            error=error,
        )
        self.outbox.record(self.outcome.state, error or f"the model is in {path}")
        self.outbox.add(Finished(self.outcome))

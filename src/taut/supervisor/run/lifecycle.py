"""The course of a run: when it starts, which phase it is in, whether anybody is left. Pure; cluster.py drives it."""

from __future__ import annotations

from dataclasses import dataclass

from taut.core.messages import NextPhase, Start
from taut.supervisor.run.admission import Admission
from taut.supervisor.run.outcome import NOBODY_LEFT
from taut.supervisor.run.workers import Worker

IDLE_S = 60.0  # a worker whose fellows all failed has begun to train by then, or never will


@dataclass(slots=True)
class Lifecycle:
    """``roll`` knows the workers and what has happened so far."""

    roll: Admission
    idle_since_s: float | None = None  # since when nobody is left that has ever trained

    @property
    def needed(self) -> int:
        """How many workers must be ready for the start."""
        return max(1, self.roll.plan.workers - self.roll.ledger.lost)

    @property
    def expected(self) -> int:
        """How many of them it still waits for."""
        return 0 if self.roll.ledger.started_s is not None else max(0, self.needed - len(self.roll.members.with_state()))

    def begin(self, worker: Worker) -> None:
        """A worker has the state: let it train if the run is going, let it drain if the run is ending."""
        roll = self.roll
        if roll.ending.begun:
            roll.ending.tell(worker)
        elif roll.ledger.started_s is not None:
            if worker.state == "ready":  # a loop without a single sample is done before the start
                worker.state = "training"
            roll.outbox.send(worker.connection, Start())

    def start(self, now: float) -> None:
        """As soon as enough workers are ready."""
        roll, plan, ready = self.roll, self.roll.plan, self.roll.members.with_state()
        if roll.ledger.started_s is not None or roll.ending.begun or len(ready) < self.needed:
            return
        roll.ledger.started_s = now
        roll.outbox.record("start", f"training starts with {len(ready)} of {plan.workers} workers")
        if plan.finish == "any" and not plan.agrees:
            given = f"strategy {plan.strategy!r} leaves replicas that differ, and finish=any takes the lowest rank's"
            roll.outbox.record("finish", given)
        roll.started(now)
        for worker in ready:
            self.begin(worker)

    def next_phase(self) -> None:
        """Announce the phase that everybody who still has data has come to."""
        roll, able = self.roll, self.roll.members.with_state()
        busy = [worker for worker in able if worker.state in ("ready", "training")]
        reached = min((worker.phase for worker in busy), default=0)
        if roll.ending.begun or reached <= roll.ledger.phase:
            return
        roll.move_on(reached)
        roll.outbox.record("phase", f"phase {reached} begins: everybody has made the steps of those before")
        for worker in able:
            roll.outbox.send(worker.connection, NextPhase(reached, roll.members.version))

    def deserted(self, now: float) -> str | None:
        """Why nobody is left who could bring the run to an end, and nobody is to come, where that is so."""
        members, ledger, ending = self.roll.members, self.roll.ledger, self.roll.ending
        if ending.verdict is not None:
            return None
        if members.with_state():
            return self._idle(now)
        self.idle_since_s = None
        none_to_come = ending.begun or ledger.lost >= self.roll.plan.workers
        if ledger.started_s is None and (members.live() or not none_to_come):
            return None
        if ledger.failures:
            return NOBODY_LEFT
        if ending.begun:
            return f"{ending.reason}, before any worker was ready"
        return "every worker left before the end of the run, so nobody could write the model"

    def _idle(self, now: float) -> str | None:
        """Why the run cannot end though workers are there: the others failed, and these have never begun to train."""
        failures, left = self.roll.ledger.failures, self.roll.members.with_state()
        if not failures or self.roll.ledger.started_s is None or any(worker.began for worker in left):
            self.idle_since_s = None
            return None
        if self.idle_since_s is None:
            self.idle_since_s = now
        if now - self.idle_since_s < IDLE_S:
            return None
        ranks = ", ".join(str(worker.rank) for worker in left[:8])
        why = f"worker {ranks} has made no step and asked for no data in {IDLE_S:.0f} s"
        return f"no worker is left that trains: {why}, and the others are gone ({'; '.join(failures[-4:])})"

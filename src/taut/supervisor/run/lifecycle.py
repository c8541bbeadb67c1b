"""The run's lifecycle: its start, its phases, whether any worker is left, and the outcome. Pure; cluster.py drives it."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from taut.core.drift import DRIFT
from taut.core.messages import NextPhase, Start
from taut.supervisor.run.admission import Admission
from taut.supervisor.run.verdict import why_differ
from taut.supervisor.run.workers import WorkerEntry
from taut.supervisor.view import Outcome, grouped

NOBODY_LEFT = "no worker is left"
IDLE_S = 60.0  # a worker that has not begun to train by then, while all others failed, never will


class Lifecycle(Struct):
    """Decides on the start and the phases. ``admission`` knows the workers and the run so far."""

    admission: Admission
    idle_since_s: float | None = None  # since when no worker is left that has trained

    @property
    def needed(self) -> int:
        """Return the number of workers that must be ready for the start."""
        return max(1, self.admission.plan.workers - self.admission.ledger.lost)

    @property
    def expected(self) -> int:
        """Return how many of the ``needed`` workers are missing."""
        started = self.admission.ledger.started_s is not None
        return 0 if started else max(0, self.needed - len(self.admission.members.with_state()))

    def begin(self, worker: WorkerEntry) -> None:
        """Let a worker that has the state train if the run is going, or drain if the run is ending."""
        admission = self.admission
        if admission.ending.begun:
            admission.ending.tell(worker)
        elif admission.ledger.started_s is not None:
            if worker.state == "ready":  # a loop without a single sample is done before the start
                worker.state = "training"
            admission.outbox.send(worker.connection, Start())

    def start(self, now: float) -> None:
        """Start training as soon as enough workers are ready."""
        admission, plan, ready = self.admission, self.admission.plan, self.admission.members.with_state()
        if admission.ledger.started_s is not None or admission.ending.begun or len(ready) < self.needed:
            return
        if admission.members.founding():
            return  # its state is the initial one, and would be too old after the start
        admission.ledger.started_s = now
        admission.outbox.record("start", f"training starts with {len(ready)} of {plan.workers} workers")
        if plan.finish == "any" and not plan.agrees:
            given = f"strategy {plan.strategy!r} leaves replicas that differ, and finish=any takes the lowest rank's"
            admission.outbox.record("finish", given)
        admission.started(now)
        for worker in ready:
            self.begin(worker)

    def next_phase(self) -> None:
        """Announce the phase that all workers with data have reached."""
        admission, able = self.admission, self.admission.members.with_state()
        busy = [worker for worker in able if worker.state in ("ready", "training")]
        reached = min((worker.phase for worker in busy), default=0)
        last = admission.plan.phases - 1 + admission.ledger.growths
        if reached > last and not self._resyncs():
            reached = last
        if admission.ending.begun or reached <= admission.ledger.phase:
            return
        admission.move_on(reached)
        if reached <= last:
            admission.outbox.record("phase", f"phase {reached} begins: all workers have made the steps of those before")
        elif reached == last + 1:
            steps, found = admission.plan.resync, ", ".join(admission.members.roundings())
            admission.outbox.record("resync", f"processors round differently ({found}): mean taken every {steps} steps")
        for worker in able:
            admission.outbox.send(
                worker.connection, NextPhase(reached, admission.members.version, admission.ledger.growths)
            )

    def _resyncs(self) -> bool:
        """Return whether the last phase begins again, since processors round differently. After an election it does not:
        the elected members know nothing of phases, and the mean at the end is enough."""
        admission = self.admission
        return bool(admission.plan.resync and len(admission.members.roundings()) > 1 and not admission.members.view)

    def deserted(self, now: float) -> str | None:
        """Return the reason if no worker is left, or to come, that could end the run; else None."""
        members, ledger, ending = self.admission.members, self.admission.ledger, self.admission.ending
        if ending.verdict is not None:
            return None
        if members.with_state():
            return self._idle(now)
        self.idle_since_s = None
        none_to_come = ending.begun or ledger.lost >= self.admission.plan.workers
        if ledger.started_s is None and (members.live() or not none_to_come):
            return None
        if ledger.failures:
            return NOBODY_LEFT
        if ending.begun:
            return f"{ending.reason}, before any worker was ready"
        return "every worker left before the end of the run, so none could write the model"

    def _idle(self, now: float) -> str | None:
        """Return the reason if the run cannot end: the others failed, and those who are here never began to train."""
        failures, left = self.admission.ledger.failures, self.admission.members.with_state()
        if not failures or self.admission.ledger.started_s is None or any(worker.began for worker in left):
            self.idle_since_s = None
            return None
        if self.idle_since_s is None:
            self.idle_since_s = now
        if now - self.idle_since_s < IDLE_S:
            return None
        ranks = ", ".join(str(worker.rank) for worker in left[:8])
        why = f"worker {ranks} has made no step and asked for no data in {IDLE_S:.0f} s"
        return f"no worker is left that trains: {why}, and the others are gone ({'; '.join(failures[-4:])})"


def outcome_of(admission: Admission, path: str, error: str, began_s: float, now: float) -> Outcome:
    """Return the outcome. ``path``: of the model, or "" because of ``error``; ``began_s``: the supervisor's start."""
    ledger, ending, verdict = admission.ledger, admission.ending, admission.ending.verdict
    if verdict is not None and verdict.exact and not verdict.identical:
        refused = {worker.rank: worker.refused for worker in admission.members.workers.values()}
        error = error or why_differ(ending.digests, refused)
    if ending.averages and ending.distance() > DRIFT:
        far = f"the replicas are {ending.distance():.2g} of their norm apart, which rounding does not explain"
        error = error or f"{far} (expected at most {DRIFT:g}): a bug in taut"
    if error == NOBODY_LEFT and ledger.failures:
        error = f"{error} ({'; '.join(grouped(ledger.failures))})"
    return Outcome(
        state="finished" if path else "failed",
        exit_code=1 if error or ledger.script_failed else 0,
        identical=None if verdict is None else verdict.identical,
        exact=verdict is not None and verdict.exact,
        digest="" if verdict is None else verdict.digest,
        model=Path(path) if path else None,
        workers={row.rank: row for row in admission.members.rows(now)},
        failures=tuple(ledger.failures),
        samples_again=admission.leases.samples_again,
        samples_undone=admission.leases.samples_undone,
        consensus=ending.distance(),
        finish=admission.plan.finish,
        writer=None if ending.writer is None else ending.writer.rank,
        validation=ending.validation,
        ensemble={rank: file for rank, (file, _) in ending.kept.items()},
        wall_s=(ending.judged_s or now) - (ledger.started_s or began_s),
        error=error,
        total_s=now - began_s,
    )

"""Eviction of silent workers, and when the run waits for them instead. Pure; cluster.py drives it.

A silent worker is evicted, and the others go on; it may rejoin (``admission.py``). Two kinds of runs wait instead:

- one in lock-step (``sync``), if the heard workers are no majority: more than half of the parties, which are the workers
  in the run and the supervisor. Of two halves that cannot hear each other at most one has a majority, also if workers go
  on without a supervisor (``memberships.py``);
- one in which no worker with the model is heard: there is nothing to go on with.

A worker that is waited for has lost nothing when it speaks again. A worker whose process has ended is no party.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from taut.supervisor.run.admission import Admission
from taut.supervisor.run.workers import WorkerEntry


class Eviction(Struct):
    """Evicts silent workers. ``since_s``: since when the run waits for workers; None while it does not."""

    admission: Admission
    since_s: float | None = None

    def judge(self, now: float) -> str | None:
        """Evict silent workers, or wait for them. Return the reason if the run has waited for too long and is over."""
        live = self.admission.members.live()
        silent = self._silent(live, now)
        if (not silent and not self.admission.withheld) or self._enough(live, silent):
            if self.since_s is not None:
                self.since_s = None
                self.admission.outbox.record("waiting", "over: enough workers are heard again")
                for worker in silent:  # it may be a moment behind the others, and gets another chance
                    worker.detector.seen(now)
                return None
            for worker in silent:
                closed = "its connection was closed; " if worker.detector.is_closed else ""
                reason = f"{closed}silent for {worker.detector.silence_s(now):.1f} s"
                self.admission.expel(worker, reason, now, may_return=True)
            return None
        lacking = f"{len(silent)} of {len(live)} workers are silent" if silent else f"{len(live)} workers are left"
        plan = self.admission.plan
        majority = f"{plan.strategy} goes on only with a majority"
        why = f"{lacking}: {majority if plan.majority else 'no worker that has the model can be reached'}"
        if self.since_s is None:
            self.since_s = now
            self.admission.outbox.record("waiting", f"{why}; waiting, for {plan.patience_s:.0f} s at most")
        if now - self.since_s < plan.patience_s:
            return None
        remedy = "; `taut resume` goes on from the last checkpoint" if plan.checkpoint_every else ""
        return f"{why}, and were not heard again in {now - self.since_s:.0f} s{remedy}"

    def _silent(self, live: Sequence[WorkerEntry], now: float) -> list[WorkerEntry]:
        """Return the workers that must be taken for dead: by their silence, or since their connection was closed. If
        most have lost their connections at once, our own network is down, and closed connections do not count."""
        judged = [worker for worker in live if worker.judged]
        few = 2 * sum(worker.detector.is_closed for worker in judged) <= len(judged)
        return [one for one in judged if one.detector.suspects(now) or (few and one.detector.abandoned(now))]

    def _enough(self, live: Sequence[WorkerEntry], silent: Sequence[WorkerEntry]) -> bool:
        ledger, ending = self.admission.ledger, self.admission.ending
        if ledger.started_s is None or ending.verdict is not None:
            return True  # nothing was trained yet, or workers exchange nothing any more
        if not self.admission.plan.majority:
            return len(silent) < len(live)
        lost = {worker.rank for worker in silent}
        heard = {worker.rank for worker in live if worker.rank not in lost}
        return self.admission.enough(heard) and 2 * (len(heard) + 1) > len(live) + 1

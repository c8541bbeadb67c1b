"""Whose silence means that it is given up, and when the others rather wait. Pure; cluster.py drives it.

Who is silent is given up, and the others go on; it may come back (``admission.py``). Two runs wait instead:

- one in lock-step (``sync``), when those that are heard are no majority: more than half of the parties, which are the
  workers in the run and the supervisor. Of two halves that cannot hear each other one has no majority, or the other; also
  where workers go on without a supervisor (``memberships.py``);
- one of whose workers none is heard that has the model: without them there is nothing to go on with.

Who is waited for has lost nothing when it speaks again. A worker whose process is known to have ended is no party.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taut.supervisor.run.admission import Admission
from taut.supervisor.run.workers import Worker


@dataclass(slots=True)
class Eviction:
    """``since_s``: since when the run waits for workers; None while it does not."""

    roll: Admission
    since_s: float | None = None

    def judge(self, now: float) -> str | None:
        """Give up the silent, or wait for them; why the run is over, where it has waited for too long."""
        live = self.roll.members.live()
        silent = self._silent(live, now)
        if (not silent and not self.roll.withheld) or self._enough(live, silent):
            if self.since_s is not None:
                self._go_on(silent, now)
                return None
            for worker in silent:
                closed = "its connection was closed; " if worker.detector.is_closed else ""
                reason = f"{closed}silent for {worker.detector.silence_s(now):.1f} s"
                self.roll.given_up(worker, reason, now, may_return=True)
            return None
        lacking = f"{len(silent)} of {len(live)} workers are silent" if silent else f"{len(live)} workers are left"
        why = f"{lacking}: {self._needs()}"
        patience_s = self.roll.plan.patience_s
        if self.since_s is None:
            self.since_s = now
            self.roll.outbox.record("waiting", f"{why}; waiting, for {patience_s:.0f} s at most")
        if now - self.since_s < patience_s:
            return None
        remedy = "; `taut resume` goes on from the last checkpoint" if self.roll.plan.checkpoint_every else ""
        return f"{why}, and were not heard again in {now - self.since_s:.0f} s{remedy}"

    def _silent(self, live: Sequence[Worker], now: float) -> list[Worker]:
        """Those that must be taken for gone: by their rhythm, or since their connection was closed. Where most have lost
        it at once they are not dying: it is our own network, and they come back when it does."""
        judged = [worker for worker in live if worker.judged]
        few = 2 * sum(worker.detector.is_closed for worker in judged) <= len(judged)
        return [one for one in judged if one.detector.suspects(now) or (few and one.detector.abandoned(now))]

    def _needs(self) -> str:
        plan = self.roll.plan
        if plan.majority:
            return f"{plan.strategy} goes on only with a majority"
        return "nobody is left who has the model"

    def _enough(self, live: Sequence[Worker], silent: Sequence[Worker]) -> bool:
        """Whether those that are heard go on without the others."""
        ledger, ending = self.roll.ledger, self.roll.ending
        if ledger.started_s is None or ending.verdict is not None:
            return True  # nothing was trained that could part, or nobody exchanges anything any more
        if not self.roll.plan.majority:
            return len(silent) < len(live)
        lost = {worker.rank for worker in silent}
        heard = {worker.rank for worker in live if worker.rank not in lost}
        return self.roll.enough(heard) and 2 * (len(heard) + 1) > len(live) + 1

    def _go_on(self, silent: Sequence[Worker], now: float) -> None:
        """The wait is over. Who is still silent may be a moment behind the others: it is judged anew."""
        self.since_s = None
        self.roll.outbox.record("waiting", "over: enough workers are heard again")
        for worker in silent:
            worker.detector.seen(now)

"""What the run's owner changes while it goes: a worker that pauses, the learning rates, the slack. Pure; cluster.py
drives it.

What was changed is in the ledger and with the worker, so newcomers, reminders and a supervisor that comes back tell it
again, whole.
"""

from __future__ import annotations

import math

from msgspec import Struct

from taut.errors import Misuse
from taut.supervisor.run.actions import Paused
from taut.supervisor.run.admission import Admission
from taut.supervisor.run.workers import WorkerEntry

LEAST_RATE, MOST_RATE = 1e-6, 1e6
LEAST_SLACK, MOST_SLACK = 2.0**-40, 2.0**10


def steered_text(rate: float, slack: float) -> str:
    """Return what the owner has set, in words.

    >>> steered_text(0.5, 0.25), steered_text(1.0, 0.0)
    ('learning rates times 0.5, slack 0.25', '')
    """
    told = [f"learning rates times {rate:g}"] if rate != 1.0 else []
    return ", ".join(told + ([f"slack {slack:g}"] if slack else []))


class Owner(Struct):
    """Carries out the owner's changes. Each is an event, with ``reason``: who asked for it."""

    admission: Admission

    def pause(self, rank: int, reason: str, paused: bool = True) -> None:
        """Let worker ``rank`` make no step until it is told to go on (``paused`` false); the others go on without its
        steps. Raise ``Misuse`` if that is impossible."""
        worker = self._trains(rank)
        if worker.paused == paused:
            raise Misuse(f"worker {rank}, which {'is paused' if paused else 'is not paused'}", "one that is not")
        why = self.admission.plan.cannot_pause if paused else ""
        if why:
            raise Misuse(
                f"a pause of worker {rank}, {why}", "a run whose workers can wait one by one", "drain the worker"
            )
        self.admission.ledger.steered += 1
        worker.paused = paused
        does = "is to make no step" if paused else "goes on"
        self.admission.outbox.record("paused" if paused else "resumed", f"worker {rank} {does}: {reason}")
        self.admission.outbox.add(Paused(rank, paused))
        self.admission.steer(worker)

    def tune(self, rate: float | None, slack: float | None, reason: str) -> None:
        """Change what all learning rates are multiplied by, the slack of ``tether``, or both; None: as it is. Raise
        ``Misuse`` for a value that is out of bounds, or a run that cannot follow."""
        ledger, told = self.admission.ledger, []
        if rate is not None:
            self._check_rate(rate)
            told.append(f"learning rates are multiplied by {rate:g} ({ledger.rate:g} before)")
        if slack is not None:
            self._check_slack(slack)
            told.append(f"the slack is {slack:g} ({f'{ledger.slack:g}' if ledger.slack else 'the codec chose'} before)")
        if not told:
            raise Misuse("a change of nothing", "a rate or a slack")
        self._goes_on("a change")
        ledger.rate = ledger.rate if rate is None else rate
        ledger.slack = ledger.slack if slack is None else slack
        ledger.steered += 1
        self.admission.outbox.record("tuned", f"{' and '.join(told)}: {reason}")
        for worker in self.admission.members.live():
            self.admission.steer(worker)

    def resume(self, rate: float, slack: float) -> str:
        """Take over what the owner had set when the checkpoint was made that the run continues, before any worker comes.
        Return it in words, empty if it was nothing."""
        ledger, plan = self.admission.ledger, self.admission.plan
        ledger.rate, ledger.slack = 1.0 if plan.cannot_scale else rate, slack if plan.tethered else 0.0
        ledger.steered = int((ledger.rate, ledger.slack) != (1.0, 0.0))
        return steered_text(ledger.rate, ledger.slack)

    def _check_rate(self, rate: float) -> None:
        plan = self.admission.plan
        if plan.cannot_scale:
            given = f"another learning rate for a run {plan.cannot_scale}"
            raise Misuse(given, "a run whose workers agree on their rates", "resume it with another rate in the script")
        if not (math.isfinite(rate) and LEAST_RATE <= rate <= MOST_RATE):
            raise Misuse(f"learning rates times {rate:g}", f"{LEAST_RATE:g} to {MOST_RATE:g}", "0.5 halves them all")

    def _check_slack(self, slack: float) -> None:
        if not self.admission.plan.tethered:
            remedy = "`--codec tether` with a stream, such as async, has a slack"
            raise Misuse(f"a slack for run {self.admission.plan.run!r}", "a run with the codec tether", remedy)
        exact = math.isfinite(slack) and slack > 0.0 and math.frexp(slack)[0] == 0.5
        if not (exact and LEAST_SLACK <= slack <= MOST_SLACK):
            raise Misuse(
                f"a slack of {slack:g}", f"a power of two from {LEAST_SLACK:g} to {MOST_SLACK:g}", "try 0.015625"
            )

    def _trains(self, rank: int) -> WorkerEntry:
        members = self.admission.members
        worker = members.workers.get(rank)
        if worker is None or not worker.live:
            known = ", ".join(str(one.rank) for one in members.live()) or "none yet"
            raise Misuse(f"worker {rank}", f"a worker that is in the run: {known}")
        self._goes_on(f"worker {rank}")
        if worker.state == "done":
            raise Misuse(f"worker {rank}, which has no data left", "one that trains", "it waits for the end of the run")
        return worker

    def _goes_on(self, what: str) -> None:
        if self.admission.ending.begun:
            raise Misuse(f"{what} of a run that is ending", "a run that goes on", "it ends by itself")

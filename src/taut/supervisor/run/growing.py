"""Growing models: once the script of every worker asks for a grown model, all of them begin the next phase with it. Pure.

A growth is a phase change like any other (``lifecycle.py``), but for two things: the strategy stays as it is, and the
run's model is another one from then on. All workers must ask for the same tensors: the first one's.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from taut.core.messages import NextPhase, Refusal, TensorSpec
from taut.supervisor.run.admission import Admission
from taut.supervisor.run.workers import WorkerEntry, model_differs

WHILE_JOINING = "the run's model has grown while it joined: it has the model of before"


class Growing(Struct):
    """Decides when the model grows. ``wanted``: the tensors of the next model, as the first worker asked for them."""

    admission: Admission
    wanted: Sequence[TensorSpec] | None = None

    def asked(self, worker: WorkerEntry, growths: int, model: Sequence[TensorSpec]) -> None:
        """Note that the script of ``worker`` has asked ``growths`` times for a grown model, now for this one; refuse one
        that is not the other workers'."""
        if growths != self.admission.ledger.growths + 1 or not model:
            return
        if self.wanted is None:
            self.wanted = model
        why = model_differs(self.wanted, model)
        if why is None:
            worker.growths = growths
        else:
            self.admission.outbox.record("refused", f"worker {worker.rank} asked for {why}")
            self.admission.outbox.send(worker.connection, Refusal(f"worker.grow to {why}"[:4000]))

    def advance(self, now: float) -> None:
        """Announce the grown model, if every worker that trains has asked for it."""
        admission, ledger, members = self.admission, self.admission.ledger, self.admission.members
        able = members.with_state()
        busy = [worker for worker in able if worker.state in ("ready", "training")]
        if admission.ending.begun or ledger.started_s is None or self.wanted is None or not busy:
            return
        if min(worker.growths for worker in busy) <= ledger.growths:
            return
        for worker in [one for one in members.live() if one.state == "joining"]:
            admission.expel(worker, WHILE_JOINING, now)
        members.model, self.wanted = self.wanted, None
        ledger.growths += 1
        for worker in able:
            worker.phase += 1  # the same strategy, under the next number
        admission.move_on(ledger.phase + 1)
        tensors = len(members.model)
        admission.outbox.record("growth", f"phase {ledger.phase} begins with a grown model of {tensors} tensors")
        for worker in able:
            admission.outbox.send(worker.connection, NextPhase(ledger.phase, members.version, ledger.growths))

"""Removes workers: those that the user dismisses, and those that send bad messages. Pure; cluster.py drives it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from taut.core.messages import SUPERVISOR, Complaint, Dispute, Leave
from taut.errors import Misuse
from taut.supervisor.faults.complaints import Complaints
from taut.supervisor.faults.disputes import Disputes
from taut.supervisor.run.admission import Admission
from taut.supervisor.run.workers import WorkerEntry

RENEWAL_S = 30.0  # the run's end waits so long for workers that take its state anew


class ExpulsionPolicy(Struct):
    """Decides which workers to expel; ``admission`` carries it out."""

    admission: Admission
    complaints: Complaints = field(default_factory=Complaints)
    disputes: Disputes = field(default_factory=Disputes)
    renewed: dict[int, float] = {}  # workers that are to take the run's state anew: since when

    def dismiss(self, rank: int, reason: str, now: float, expel: bool = False) -> None:
        """Let worker ``rank`` leave in order, with everything handed over; ``expel``: at once. The others go on.
        Raise ``Misuse`` if there is no such worker, or no other could go on."""
        worker = self._dismissible(rank, expel)
        if expel:
            self.admission.expel(worker, reason, now)
            return
        worker.leave = reason
        self.admission.outbox.record("leaving", f"worker {rank} is to go: {reason}")
        self.admission.outbox.send(worker.connection, Leave(reason))

    def complained(self, accuser: WorkerEntry, complaints: Sequence[Complaint], now: float) -> None:
        """Handle a heartbeat's complaints about others."""
        for complaint in complaints:
            accused = self.admission.members.workers.get(complaint.rank)
            if accused is None or accused is accuser or not accused.live:
                continue
            self._note(accused, self.complaints.accuse(accuser.rank, complaint, now))
            self._judge(accused, complaint.why, now)

    def disputed(self, accuser: WorkerEntry, disputes: Sequence[Dispute], now: float) -> None:
        """Note a heartbeat's disputes about updates; decide those that are old enough."""
        workers = self.admission.members.workers
        for origin, other in ((dispute.origin, dispute.other) for dispute in disputes):
            known = origin in workers and other in workers and workers[other].has_state
            if known and accuser.has_state and len({origin, other, accuser.rank}) == 3:
                self.disputes.note(origin, accuser.rank, other, now)
        for origin in self.disputes.due(now):
            self._decide(origin, now)

    def _decide(self, origin: int, now: float) -> None:
        """Expel an origin that sent different updates to different workers. Workers that differ from the others take
        the run's state anew: they did nothing wrong, and may rejoin. A run that is ending only records it."""
        members = self.admission.members
        live = {worker.rank for worker in members.with_state() if worker.rank != origin}
        ruling = self.disputes.decide(origin, live)
        if not ruling.renewed:
            return
        differ = ", ".join(str(rank) for rank in ruling.renewed)
        told = f"of worker {origin}'s updates worker {differ} holds others than the rest"
        if not self.admission.ending.begun or origin not in self.disputes.shown:
            self.admission.outbox.record("dispute", told)
        if self.admission.ending.begun:
            self.disputes.shown.add(origin)
            return
        if ruling.expels and members.workers[origin].live:
            self.admission.expel(members.workers[origin], "it sent different updates to different workers", now)
        self._renew(ruling.renewed, origin, f"{told}: it takes their state", now)

    def _agree_again(self, liar: int, now: float) -> None:
        """Let all workers take one worker's state after a liar was expelled, if replicas are equal only because all
        take the same updates: it is unknown what else it sent to which workers."""
        if self.admission.plan.streams and not self.admission.ending.begun:
            _, *others = sorted(worker.rank for worker in self.admission.members.with_state())
            why = f"worker {liar} may have sent different updates to different workers: it takes the others' state"
            self._renew(others, liar, why, now)

    def _renew(self, ranks: Sequence[int], liar: int, why: str, now: float) -> None:
        """Let these workers, which did nothing wrong, take the run's state anew, without the liar's updates."""
        for rank in ranks:
            self.renewed[rank] = now
            self.admission.expel(self.admission.members.workers[rank], why, now, may_return=True, without=(liar,))

    def renewing(self, now: float) -> bool:
        """Return whether a worker that had to take the run's state anew has yet to rejoin: the end waits for it."""
        workers = self.admission.members.workers
        for rank, since_s in list(self.renewed.items()):
            successor = workers[rank].successor
            if now - since_s > RENEWAL_S or (successor is not None and workers[successor].state != "joining"):
                del self.renewed[rank]
        return bool(self.renewed)

    def refused(self, worker: WorkerEntry, why: str, now: float, refused: int = 1, excess: int = 0) -> None:
        """Note that the supervisor itself refused so many messages of this worker."""
        if worker.live:
            self._note(worker, self.complaints.refused_here(worker.rank, refused, excess, why, now))
            self._judge(worker, why, now)

    def odd(self, text: str, most: int = 500) -> None:
        """Record an unexpected message, ``most`` characters of it: the first ones, then every hundredth, since a
        broken client must not fill the disk."""
        ledger = self.admission.ledger
        ledger.oddities += 1
        if ledger.oddities <= 20 or ledger.oddities % 100 == 0:
            self.admission.outbox.record("odd", f"{text[:most]} (number {ledger.oddities})")

    def _judge(self, accused: WorkerEntry, why: str, now: float) -> None:
        accusers = self.complaints.accusers(accused.rank)
        if not accusers or self.admission.ending.verdict is not None:
            return  # after the verdict workers exchange nothing any more
        others = [worker.rank for worker in self.admission.members.live() if worker is not accused]
        if self.complaints.convicted(accused.rank, self._hearers(accused.rank, others), others):
            named = ["the supervisor" if one == SUPERVISOR else f"worker {one}" for one in sorted(accusers)]
            told = f"its messages were refused too often, by {' and '.join(named[:8])} (the last: {why or 'too many'})"
            self.admission.expel(accused, told, now)
            if accusers - {SUPERVISOR} and self.complaints.refused(accused.rank):
                self._agree_again(accused.rank, now)

    def _hearers(self, rank: int, others: Sequence[int]) -> Sequence[int]:
        topology = self.admission.plan.topology
        if topology == "complete":
            return others
        from taut.topologies.registry import parse

        return parse(topology).union(sorted([rank, *others])).outward(rank)

    def _note(self, accused: WorkerEntry, news: str | None) -> None:
        accused.refused = self.complaints.total(accused.rank)
        if news is not None:
            self.admission.outbox.record("refused", news)

    def _dismissible(self, rank: int, expel: bool) -> WorkerEntry:
        members, ending = self.admission.members, self.admission.ending
        worker = members.workers.get(rank)
        if worker is None:
            known = ", ".join(str(one.rank) for one in members.live()) or "none yet"
            raise Misuse(f"worker {rank}", f"a worker of this run: {known}")
        if not worker.live:
            raise Misuse(f"worker {rank}, which is gone ({worker.reason})", "a worker that is still in the run")
        if ending.begun and not expel:
            raise Misuse(f"worker {rank} of a run that is ending", "one that goes on", "it ends by itself, with the run")
        if worker.state == "done" and not expel:
            raise Misuse(f"worker {rank}, which has no data left", "one that trains", "it waits for the end of the run")
        if not any(one is not worker and one.leave is None for one in members.with_state()):
            raise Misuse(f"worker {rank}, the last one", "another worker that goes on", "`taut drain RUN` ends the run")
        return worker

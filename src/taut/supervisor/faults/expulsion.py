"""Sending workers away: whom the user dismisses, and who sends what makes no sense. Pure; cluster.py drives it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from taut.core.messages import SUPERVISOR, Complaint, Dispute, Leave
from taut.errors import Misuse
from taut.supervisor.faults.complaints import Complaints
from taut.supervisor.faults.disputes import Disputes
from taut.supervisor.run.admission import Admission
from taut.supervisor.run.workers import Worker

RENEWAL_S = 30.0  # the end of the run waits so long for workers that take its state anew


@dataclass(slots=True)
class ExpulsionPolicy:
    """``roll`` carries the departures out."""

    roll: Admission
    complaints: Complaints = field(default_factory=Complaints)
    disputes: Disputes = field(default_factory=Disputes)
    renewed: dict[int, float] = field(default_factory=dict)  # who is to take the run's state anew, and since when

    def dismiss(self, rank: int, reason: str, now: float, expel: bool = False) -> None:
        """Worker ``rank`` is to go in order, with everything handed over; ``expel``: at once. The others go on.
        ``Misuse`` where there is no such worker, or nobody who could go on."""
        worker = self._dismissible(rank, expel)
        if expel:
            self.roll.given_up(worker, reason, now)
            return
        worker.leave = reason
        self.roll.outbox.record("leaving", f"worker {rank} is to go: {reason}")
        self.roll.outbox.send(worker.connection, Leave(reason))

    def complained(self, accuser: Worker, complaints: Sequence[Complaint], now: float) -> None:
        """What a heartbeat says of others."""
        for complaint in complaints:
            accused = self.roll.members.workers.get(complaint.rank)
            if accused is None or accused is accuser or not accused.live:
                continue
            self._note(accused, self.complaints.accuse(accuser.rank, complaint, now))
            self._judge(accused, complaint.why, now)

    def disputed(self, accuser: Worker, disputes: Sequence[Dispute], now: float) -> None:
        """Take a heartbeat's disputes about updates; settle those that are old enough."""
        workers = self.roll.members.workers
        for origin, other in ((dispute.origin, dispute.other) for dispute in disputes):
            known = origin in workers and other in workers and workers[other].has_state
            if known and accuser.has_state and len({origin, other, accuser.rank}) == 3:
                self.disputes.note(origin, accuser.rank, other, now)
        for origin in self.disputes.due(now):
            self._settle(origin, now)

    def _settle(self, origin: int, now: float) -> None:
        """Expel an origin that sent different updates to different workers, and let those that differ from the others
        take the run's state anew: they did nothing wrong, and come back. A run that is ending only says so."""
        members = self.roll.members
        live = {worker.rank for worker in members.with_state() if worker.rank != origin}
        ruling = self.disputes.settle(origin, live)
        if not ruling.renewed:
            return
        differ = ", ".join(str(rank) for rank in ruling.renewed)
        told = f"of worker {origin}'s updates worker {differ} holds others than the rest"
        if not self.roll.ending.begun or origin not in self.disputes.shown:
            self.roll.outbox.record("dispute", told)
        if self.roll.ending.begun:
            self.disputes.shown.add(origin)
            return
        if ruling.expels and members.workers[origin].live:
            self.roll.given_up(members.workers[origin], "it sent different updates to different workers", now)
        self._renew(ruling.renewed, origin, f"{told}: it takes their state", now)

    def _agree_again(self, liar: int, now: float) -> None:
        """One that sent what had to be refused was expelled. Where replicas are equal because all take the same updates,
        nobody knows what else it sent to whom: all take the state of one of them."""
        if self.roll.plan.streams and not self.roll.ending.begun:
            _, *others = sorted(worker.rank for worker in self.roll.members.with_state())
            self._renew(others, liar, f"worker {liar} lied, perhaps not to all alike: it takes the others' state", now)

    def _renew(self, ranks: Sequence[int], liar: int, why: str, now: float) -> None:
        """Let these workers, who did nothing wrong, take the run's state anew, without what the liar sent them."""
        for rank in ranks:
            self.renewed[rank] = now
            self.roll.given_up(self.roll.members.workers[rank], why, now, may_return=True, without=(liar,))

    def renewing(self, now: float) -> bool:
        """Return whether somebody is about to come back that had to take the run's state anew: the end waits for it."""
        workers = self.roll.members.workers
        for rank, since_s in list(self.renewed.items()):
            heir = workers[rank].successor
            if now - since_s > RENEWAL_S or (heir is not None and workers[heir].state != "joining"):
                del self.renewed[rank]
        return bool(self.renewed)

    def refused(self, worker: Worker, why: str, now: float, refused: int = 1, excess: int = 0) -> None:
        """The supervisor itself could not read, or did not take, so many messages of this worker."""
        if worker.live:
            self._note(worker, self.complaints.refused_here(worker.rank, refused, excess, why, now))
            self._judge(worker, why, now)

    def odd(self, text: str, most: int = 500) -> None:
        """Count what should not have come. The first ones are recorded, ``most`` characters of each, then every
        hundredth: a broken client must not fill the disk."""
        ledger = self.roll.ledger
        ledger.oddities += 1
        if ledger.oddities <= 20 or ledger.oddities % 100 == 0:
            self.roll.outbox.record("odd", f"{text[:most]} (number {ledger.oddities})")

    def _judge(self, accused: Worker, why: str, now: float) -> None:
        accusers = self.complaints.accusers(accused.rank)
        if not accusers or self.roll.ending.verdict is not None:
            return  # after the verdict nobody exchanges anything any more
        others = [worker.rank for worker in self.roll.members.live() if worker is not accused]
        if self.complaints.convicted(accused.rank, self._hearers(accused.rank, others), others):
            named = ["the supervisor" if one == SUPERVISOR else f"worker {one}" for one in sorted(accusers)]
            told = f"its messages were refused too often, by {' and '.join(named[:8])} (the last: {why or 'too many'})"
            self.roll.given_up(accused, told, now)
            if accusers - {SUPERVISOR} and self.complaints.refused(accused.rank):
                self._agree_again(accused.rank, now)

    def _hearers(self, rank: int, others: Sequence[int]) -> Sequence[int]:
        """Those that its messages are for, by the run's topology."""
        topology = self.roll.plan.topology
        if topology == "complete":
            return others
        from taut.topologies.registry import parse

        return parse(topology).union(sorted([rank, *others])).outward(rank)

    def _note(self, accused: Worker, news: str | None) -> None:
        accused.refused = self.complaints.total(accused.rank)
        if news is not None:
            self.roll.outbox.record("refused", news)

    def _dismissible(self, rank: int, expel: bool) -> Worker:
        members, ending = self.roll.members, self.roll.ending
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

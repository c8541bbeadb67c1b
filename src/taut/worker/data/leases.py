"""Leases from the supervisor, for a session; if none has arrived, from this worker's reserve."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import msgspec

from taut.core.messages import Lease, LeaseDone, LeaseRequest, LeaseTaken, Reserve, own_lease
from taut.core.sample_ranges import Span, joined, without
from taut.worker.comm.run_status import RunStatus
from taut.worker.data.batches import LATER, BatchPlan, LeaseSource

if TYPE_CHECKING:
    from taut.worker.session import WorkerSession

REMEMBER_S = 60.0
LEASES_AHEAD = 3
MOST_LEASES = 65_536  # in one message
MOST_ASKED = 64  # batches of a lease that is asked for
SEQUENCE = 16  # of a sequence, so that hidden states are carried far, and yet all end at about the same time
MOST_LENGTHS = 64  # lengths of passes that are remembered
LEASE_S = 0.1  # at least, if steps are shorter: a request costs a round trip, perhaps of a busy machine


class SupervisorLeases(LeaseSource):
    """Leases from the supervisor, requested ahead so that training does not wait for the network. If none has arrived,
    since the supervisor is away or slow, this worker takes from its reserve. If the reserve has nothing left of this pass
    but something of a later one, a pass that is not the last ends here. The rest of such a pass, ``left``, is requested
    together with the next one: perhaps no worker has it."""

    def __init__(self, session: WorkerSession, left: BatchPlan | None = None) -> None:
        self._session = session
        self.left = left
        self._asked = 0  # requests under way
        self._renewals = 0  # number of the connection that they were sent over
        self._held: dict[int, Lease] = {}  # taken, and not trained on yet
        self._finished: deque[tuple[float, Lease]] = deque()  # recently, and when
        self._own = 0  # leases that it took by itself
        self._ended = False
        self._lengths: list[tuple[int, int, int]] = []  # first pass, the one after the last, how long each is

    def standing(self) -> tuple[list[Lease], list[Lease]]:
        """Return the leases not trained on yet, and those trained on recently. From any thread."""
        status = self._session.comm.status
        with status.changed:
            at_hand = [] if self._ended else status.leases
            return [*self._held.values(), *at_hand], [lease for _, lease in list(self._finished)]

    def trained(self) -> list[Lease]:
        """Return the leases that this worker trained on recently, or may have begun."""
        with self._session.comm.status.changed:
            return [*(lease for _, lease in self._finished), *self._held.values()][-MOST_LEASES:]

    def unfinished(self, trained: Mapping[int, int]) -> list[Lease]:
        """Return the leases that this worker has taken, without the samples it has ``trained`` on of each."""
        with self._session.comm.status.changed:
            held = list(self._held.values())
        return [msgspec.structs.replace(each, lo=min(each.hi, each.lo + trained.get(each.lease, 0))) for each in held]

    def end(self, trained: Container[int]) -> list[int]:
        """Keep, at the end of the loop, only those leases that were ``trained`` on in part; return their numbers."""
        with self._session.comm.status.changed:
            self._ended = True
            self._held = {number: lease for number, lease in self._held.items() if number in trained}
            return list(self._held)

    def take(self, plan: BatchPlan, ahead: bool = False) -> Lease | Literal["later"] | None:
        status = self._session.comm.status
        self._note(plan)
        while True:
            self._ask(plan)
            if not ahead:
                self._await(plan)
            elif not self._answered(plan):
                return LATER
            if status.stopping:
                return None
            lease = self._take_dealt(plan) or self._take_own(plan)
            if lease is not None:
                return lease
            if self._dealt_out(plan) or self._may_move_on(plan):
                self._end_pass(plan)
                return None
            # meanwhile the reserve has changed, or the supervisor has answered

    def _await(self, plan: BatchPlan) -> None:
        session = self._session

        def something(_: RunStatus) -> bool:
            wanted = session.keeper is not None and session.keeper.can_take_waiting
            return (
                self._answered(plan) or session.announced or session.comm.supervisor.renewals != self._renewals or wanted
            )

        while not self._answered(plan):
            session.watch.charge("data")
            session.exchange.wait(something, again=lambda: self._ask_again(plan))
            session.watch.charge("wait")
            session.follow()
            if session.keeper is not None and not self._answered(plan):
                session.keeper.while_waiting()
            self._ask(plan)

    def _answered(self, plan: BatchPlan) -> bool:
        at_hand = self._dealt(plan) is not None or self._reserved(plan) is not None
        return at_hand or self._dealt_out(plan) or self._session.comm.status.stopping or self._may_move_on(plan)

    def _dealt(self, plan: BatchPlan) -> Lease | None:
        """Return the first lease that has arrived. A late one, of a pass over other data, waits for its next pass."""
        leases = self._session.comm.status.leases
        return next((lease for lease in list(leases) if self._length(lease.epoch, plan) == plan.length), None)

    def _take_dealt(self, plan: BatchPlan) -> Lease | None:
        status = self._session.comm.status
        with status.changed:
            lease = self._dealt(plan)
            if lease is None:
                return None
            status.leases.remove(lease)
            self._held[lease.lease] = lease
        self._asked -= 1
        if not self._dealt_out(plan):
            self._ask(plan)
        return lease

    def _note(self, plan: BatchPlan) -> None:
        last = self._lengths[-1] if self._lengths else (plan.first, plan.first, plan.length)
        if last[2] == plan.length:
            self._lengths[-1:] = [(last[0], max(last[1], plan.until), plan.length)]
        else:
            self._lengths = [*self._lengths[-MOST_LENGTHS:], (plan.first, plan.until, plan.length)]

    def _length(self, epoch: int, plan: BatchPlan) -> int:
        """Return the length of this pass; 0 if it is unknown, since lengths differ and the pass is still to come."""
        known = (length for first, until, length in reversed(self._lengths) if first <= epoch < until)
        return next(known, plan.length if len(self._lengths) == 1 else 0)

    def _dealt_out(self, plan: BatchPlan) -> bool:
        return plan.until - 1 in self._session.comm.status.dealt_out

    def _may_move_on(self, plan: BatchPlan) -> bool:
        """Return whether to end the pass without the supervisor's word that it is dealt out: the supervisor is silent,
        and the reserve has samples of a later pass."""
        reserve = self._session.comm.status.reserve
        later = reserve.length == plan.length and any(span[0] >= plan.until for span in reserve.spans)
        return later and not plan.last and self._session.comm.supervisor.quiet()

    def _end_pass(self, plan: BatchPlan) -> None:
        self._asked = 0
        self.left = None if self._dealt_out(plan) else replace(plan, first=self._first(plan))

    def _first(self, plan: BatchPlan) -> int:
        """Return the first pass to ask for. Passes over data of different lengths cannot be requested together."""
        left = self.left
        same = left is not None and (left.until, left.length) == (plan.first, plan.length)
        return left.first if left is not None and same else plan.first

    def _reserved(self, plan: BatchPlan) -> Span | None:
        """Return the first samples that are reserved for this worker, of passes up to the last of the plan."""
        reserve = self._session.comm.status.reserve
        spans = reserve.spans if reserve.length == plan.length else []
        mine = (span for span in spans if span[0] < plan.until and self._length(span[0], plan) == plan.length)
        return next(mine, None)

    def _take_own(self, plan: BatchPlan) -> Lease | None:
        """Take a lease from the reserve. The supervisor hears of it before it hears of a smaller reserve."""
        comm, status = self._session.comm, self._session.comm.status
        with status.changed:
            span = self._reserved(plan)
            if span is None:
                return None
            epoch, lo, hi = span
            hi = min(hi, lo + self._least_batches(plan) * plan.size)
            lease = Lease(own_lease(comm.rank, self._own), epoch, lo, hi)
            self._own += 1
            self._held[lease.lease] = lease
            status.taken = joined([*status.taken, (epoch, lo, hi)])
            rest = without(status.reserve.spans, (epoch, lo, hi))
            status.reserve = Reserve(status.reserve.version, status.reserve.length, rest)
            comm.say(LeaseTaken(lease, plan.length))
        return lease

    def _ask(self, plan: BatchPlan) -> None:
        """Keep ``LEASES_AHEAD`` leases requested or ready. Requests that died with a connection are repeated."""
        if self._session.comm.supervisor.renewals != self._renewals:
            self._renewals, self._asked = self._session.comm.supervisor.renewals, len(self._session.comm.status.leases)
        while self._asked < LEASES_AHEAD:
            self._asked += 1
            self._session.comm.say(self.request(plan))

    def request(self, plan: BatchPlan) -> LeaseRequest:
        """Return the request for this plan, and for the rest of the one before it."""
        first, least = self._first(plan), self._least_batches(plan)
        asked = (first, plan.length, plan.size, plan.last, plan.until, least, plan.samples)
        return LeaseRequest(*asked, plan.pace.global_batch if plan.pace else 0)

    def _ask_again(self, plan: BatchPlan) -> None:
        """Ask again: a lease may have been lost with a connection that broke; one too many does no harm."""
        self._asked = 0
        self._ask(plan)

    def _least_batches(self, plan: BatchPlan) -> int:
        """Return how many batches make a lease last ``LEASE_S``, by the steps so far. Of a sequence: many."""
        if plan.stretches:
            return SEQUENCE
        made = self._session.statistics()
        return max(1, min(MOST_ASKED, round(LEASE_S * made.steps / made.wall_s))) if made.wall_s > 0 else 1

    def done(self, lease: Lease) -> None:
        comm = self._session.comm
        now = comm.clock.now()
        with comm.status.changed:
            self._finished.append((now, self._held.pop(lease.lease, lease)))
            self._forget(now)
        self._session.comm.say(LeaseDone([lease.lease]))

    def _forget(self, now: float) -> None:
        """Forget the finished leases that the supervisor must know by now. Its store is a second behind, and it asks for
        what was lost at the next heartbeat. If it has been away, it must first have received this worker's state."""
        status = self._session.comm.status
        while self._finished and status.silent_since_s is None:
            finished_s, lease = self._finished[0]
            if now - max(finished_s, status.heard_again_s) <= REMEMBER_S:
                return
            self._finished.popleft()
            status.taken = without(status.taken, (lease.epoch, lease.lo, lease.hi))

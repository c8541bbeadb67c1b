"""Leases from the supervisor, for a seat in a run; when none is at hand, from what it has set aside for this worker."""

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
MOST_LENGTHS = 64  # of passes in turn that are remembered
LEASE_S = 0.1  # at least, where steps are shorter: asking costs a round trip, perhaps of a busy machine


class SupervisorLeases(LeaseSource):
    """Leases from the supervisor, asked for ahead so that nobody waits for the network between them. Where that is not
    enough, since it is away or slow, this worker takes what was set aside for it; and where nothing is left of that
    either, but something of a later pass, a pass that may have a successor ends. What was ``left`` like that is asked for
    together with the next one: perhaps nobody has it."""

    def __init__(self, seat: WorkerSession, left: BatchPlan | None = None) -> None:
        self._seat = seat
        self.left = left
        self._asked = 0  # requests under way
        self._renewals = 0  # of the connection that they were said over
        self._held: dict[int, Lease] = {}  # taken, and not trained on yet
        self._finished: deque[tuple[float, Lease]] = deque()  # of late, and when
        self._own = 0  # leases that it took by itself
        self._ended = False
        self._lengths: list[tuple[int, int, int]] = []  # first pass, the one after the last, how long each is

    def standing(self) -> tuple[list[Lease], list[Lease]]:
        """What this worker has of leases: those not trained on yet, and those it trained on of late. From any thread."""
        facts = self._seat.node.facts
        with facts.changed:
            at_hand = [] if self._ended else facts.leases
            return [*self._held.values(), *at_hand], [lease for _, lease in list(self._finished)]

    def trained(self) -> list[Lease]:
        """Return the leases that this worker trained on of late, or may have begun."""
        with self._seat.node.facts.changed:
            return [*(lease for _, lease in self._finished), *self._held.values()][-MOST_LEASES:]

    def unfinished(self, trained: Mapping[int, int]) -> list[Lease]:
        """What this worker has taken, without what it has trained on: so many places of each lease."""
        with self._seat.node.facts.changed:
            held = list(self._held.values())
        return [msgspec.structs.replace(each, lo=min(each.hi, each.lo + trained.get(each.lease, 0))) for each in held]

    def end(self, trained: Container[int]) -> list[int]:
        """The loop is over: of what this worker has, only those that it has ``trained`` on in part; which."""
        with self._seat.node.facts.changed:
            self._ended = True
            self._held = {number: lease for number, lease in self._held.items() if number in trained}
            return list(self._held)

    def take(self, plan: BatchPlan, ahead: bool = False) -> Lease | Literal["later"] | None:
        facts = self._seat.node.facts
        self._note(plan)
        while True:
            self._ask(plan)
            if not ahead:
                self._await(plan)
            elif not self._answered(plan):
                return LATER
            if facts.stopping:
                return None
            lease = self._take_dealt(plan) or self._take_own(plan)
            if lease is not None:
                return lease
            if self._dealt_out(plan) or self._goes_on(plan):
                self._over(plan)
                return None
            # what was set aside is not any more, or the supervisor has spoken: that came between

    def _await(self, plan: BatchPlan) -> None:
        """Until there is a lease, or none will come."""
        seat = self._seat

        def something(_: RunStatus) -> bool:
            wanted = seat.keeper is not None and seat.keeper.can_take
            return self._answered(plan) or seat.announced or seat.node.supervisor.renewals != self._renewals or wanted

        while not self._answered(plan):
            seat.watch.charge("data")
            seat.talk.wait(something, again=lambda: self._ask_again(plan))
            seat.watch.charge("wait")
            seat.follow()
            if seat.keeper is not None and not self._answered(plan):
                seat.keeper.while_waiting()
            self._ask(plan)

    def _answered(self, plan: BatchPlan) -> bool:
        """Return whether a lease is at hand, or none will come."""
        at_hand = self._dealt(plan) is not None or self._reserved(plan) is not None
        return at_hand or self._dealt_out(plan) or self._seat.node.facts.stopping or self._goes_on(plan)

    def _dealt(self, plan: BatchPlan) -> Lease | None:
        """The first lease at hand. One of a pass over other data, which came late, waits for the next such pass."""
        leases = self._seat.node.facts.leases
        return next((lease for lease in list(leases) if self._length(lease.epoch, plan) == plan.length), None)

    def _take_dealt(self, plan: BatchPlan) -> Lease | None:
        facts = self._seat.node.facts
        with facts.changed:
            lease = self._dealt(plan)
            if lease is None:
                return None
            facts.leases.remove(lease)
            self._held[lease.lease] = lease
        self._asked -= 1
        if not self._dealt_out(plan):
            self._ask(plan)
        return lease

    def _note(self, plan: BatchPlan) -> None:
        """How long its passes are."""
        last = self._lengths[-1] if self._lengths else (plan.first, plan.first, plan.length)
        if last[2] == plan.length:
            self._lengths[-1:] = [(last[0], max(last[1], plan.until), plan.length)]
        else:
            self._lengths = [*self._lengths[-MOST_LENGTHS:], (plan.first, plan.until, plan.length)]

    def _length(self, epoch: int, plan: BatchPlan) -> int:
        """Of this pass; 0 where that is not known, since they differ and this one is still to come."""
        known = (length for first, until, length in reversed(self._lengths) if first <= epoch < until)
        return next(known, plan.length if len(self._lengths) == 1 else 0)

    def _dealt_out(self, plan: BatchPlan) -> bool:
        return plan.until - 1 in self._seat.node.facts.dealt_out

    def _goes_on(self, plan: BatchPlan) -> bool:
        """Whether to end the pass though nobody said that it is dealt out: the supervisor is quiet, and there is
        something to go on with."""
        reserve = self._seat.node.facts.reserve
        later = reserve.length == plan.length and any(span[0] >= plan.until for span in reserve.spans)
        return later and not plan.last and self._seat.node.supervisor.quiet()

    def _over(self, plan: BatchPlan) -> None:
        """The pass is, for this worker."""
        self._asked = 0
        self.left = None if self._dealt_out(plan) else replace(plan, first=self._first(plan))

    def _first(self, plan: BatchPlan) -> int:
        """The first pass to ask for. Passes over data of different lengths cannot be asked for together."""
        left = self.left
        same = left is not None and (left.until, left.length) == (plan.first, plan.length)
        return left.first if left is not None and same else plan.first

    def _reserved(self, plan: BatchPlan) -> Span | None:
        """The first places that are set aside for this worker, of passes up to the last of the plan."""
        reserve = self._seat.node.facts.reserve
        spans = reserve.spans if reserve.length == plan.length else []
        mine = (span for span in spans if span[0] < plan.until and self._length(span[0], plan) == plan.length)
        return next(mine, None)

    def _take_own(self, plan: BatchPlan) -> Lease | None:
        """A lease from there. The supervisor is told, before it can be told that a smaller reserve was seen."""
        node, facts = self._seat.node, self._seat.node.facts
        with facts.changed:
            span = self._reserved(plan)
            if span is None:
                return None
            epoch, lo, hi = span
            hi = min(hi, lo + self._least_batches() * plan.batch_size)
            lease = Lease(own_lease(node.rank, self._own), epoch, lo, hi)
            self._own += 1
            self._held[lease.lease] = lease
            facts.taken = joined([*facts.taken, (epoch, lo, hi)])
            rest = without(facts.reserve.spans, (epoch, lo, hi))
            facts.reserve = Reserve(facts.reserve.version, facts.reserve.length, rest)
            node.say(LeaseTaken(lease, plan.length))
        return lease

    def _ask(self, plan: BatchPlan) -> None:
        """Keep ``LEASES_AHEAD`` answers under way or at hand. What was asked of a supervisor that died, or
        over a connection that broke, is asked again."""
        if self._seat.node.supervisor.renewals != self._renewals:
            self._renewals, self._asked = self._seat.node.supervisor.renewals, len(self._seat.node.facts.leases)
        while self._asked < LEASES_AHEAD:
            self._asked += 1
            self._seat.node.say(self.request(plan))

    def request(self, plan: BatchPlan) -> LeaseRequest:
        """For this plan, and what was left before it."""
        first, least = self._first(plan), self._least_batches()
        return LeaseRequest(first, plan.length, plan.batch_size, plan.last, plan.until, least, plan.samples)

    def _ask_again(self, plan: BatchPlan) -> None:
        """A lease may have been lost with a connection that broke; one too many does no harm."""
        self._asked = 0
        self._ask(plan)

    def _least_batches(self) -> int:
        """So many that a lease lasts ``LEASE_S``, by the steps so far."""
        made = self._seat.statistics()
        return max(1, min(64, round(LEASE_S * made.steps / made.wall_s))) if made.wall_s > 0 else 1

    def done(self, lease: Lease) -> None:
        node = self._seat.node
        now = node.clock.now()
        with node.facts.changed:
            self._finished.append((now, self._held.pop(lease.lease, lease)))
            self._forget(now)
        self._seat.node.say(LeaseDone([lease.lease]))

    def _forget(self, now: float) -> None:
        """What the supervisor must know by now. Its store is a second behind, and what was lost it asks for at the next
        heartbeat. If it has been away, it must first have heard where this worker stands, perhaps at the second try."""
        facts = self._seat.node.facts
        while self._finished and facts.silent_since_s is None:
            finished_s, lease = self._finished[0]
            if now - max(finished_s, facts.heard_again_s) <= REMEMBER_S:
                return
            self._finished.popleft()
            facts.taken = without(facts.taken, (lease.epoch, lease.lo, lease.hi))

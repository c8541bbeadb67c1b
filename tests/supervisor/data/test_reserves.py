"""What is set aside for workers: no place is ever in two hands, and each is trained on exactly once, whenever the
supervisor dies and whatever is lost on the way. The worker's own code against the supervisor's, without a socket."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from examples import some
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scripted import Restarted

from taut.core.messages import (
    Done,
    Heartbeat,
    Lease,
    LeaseDone,
    LeaseRequest,
    LeaseTaken,
    Message,
    NoLease,
    Pulse,
    Reserve,
    ReserveSeen,
    Returned,
    Statistics,
    own_lease,
)
from taut.core.sample_ranges import Span, count, joined, overlap
from taut.supervisor.data.leases import Leases
from taut.supervisor.data.reserves import Reserves, trimmed
from taut.supervisor.run.actions import SendMessage
from taut.worker.comm.run_status import RunStatus
from taut.worker.data.batches import BatchPlan
from taut.worker.data.leases import SupervisorLeases
from taut.worker.data.sampling import whole

LENGTH, BATCH, PASSES = 300, 5, 2
PLAN = BatchPlan(LENGTH, BATCH, 0, PASSES, last=True, order=whole(LENGTH, shuffle=False)[1], drop_last=False)


class Trainee:
    """A worker as its two threads behave: one queue to the supervisor and one from it, which break as links do.
    ``lengths``: of passes that its script asks for one by one, in turns, without an end; else it asks for all at once.
    ``quiet``: how often it takes the supervisor for gone."""

    def __init__(
        self, rank: int, chance: random.Random, workers: int = 2, lengths: Sequence[int] = (), quiet: float = 0.2
    ) -> None:
        self.rank, self.chance, self.lengths = rank, chance, lengths
        self.plan = self.one_pass(0) if lengths else PLAN
        self.status, self.said, self.told, self.lost, self.term, self.version = RunStatus(), 2, 0, 0, 0, 0
        self.out: deque[Message] = deque()
        self.inbox: deque[Message] = deque()
        node = SimpleNamespace(status=self.status, rank=rank, workers=workers, say=self.say)
        node.supervisor = SimpleNamespace(renewals=0, quiet=lambda: chance.random() < quiet)
        node.clock = SimpleNamespace(now=lambda: 0.0)
        session: Any = SimpleNamespace(comm=node, statistics=lambda: Statistics(steps=10, wall_s=1.0))
        self.leases = SupervisorLeases(session)
        self.holds: list[Lease] = []
        self.samples = 0
        self.state = "ready"

    def say(self, message: Message) -> None:
        self.said += 1
        self.out.append(message)

    def end(self) -> None:
        """Its loop is over, whatever it has or is being sent."""
        self.state, self.holds = "done", []
        self.say(Done(begun=self.leases.end(()), said=self.said))

    def beat(self, now: float) -> None:
        self.out.append(Heartbeat(Statistics(samples=max(1, self.samples), wall_s=now), [], said=self.said))

    def take(self) -> None:
        """As ``SupervisorLeases.take`` does: a lease that is at hand, else one of its own, else the next pass."""
        self.leases._note(self.plan)
        lease = self.leases._dealt(self.plan)
        if lease is not None:
            self.status.leases.remove(lease)
            self.leases._held[lease.lease] = lease
        else:
            lease = self.leases._take_own(self.plan)
        if lease is not None:
            assert not self.lengths or self.length(lease.epoch) == self.plan.length, "of other data"
            self.holds.append(lease)
        elif not self.plan.last and (self.leases._dealt_out(self.plan) or self.leases._may_move_on(self.plan)):
            self.leases._end_pass(self.plan)
            self.plan = self.one_pass(self.plan.until)

    def length(self, epoch: int) -> int:
        return self.lengths[epoch % len(self.lengths)] if self.lengths else LENGTH

    def one_pass(self, number: int) -> BatchPlan:
        return replace(PLAN, length=self.length(number), first=number, until=number + 1, last=False)

    def hear(self) -> None:
        """The dispatcher's part."""
        message = self.inbox.popleft()
        if isinstance(message, Pulse):
            self._hear_pulse(message)
            return
        self.told += 1
        self.status.learn(message, [])  # type: ignore[arg-type]  # of this family
        if isinstance(message, Reserve) and self.status.reserve.version > self.version:
            self.version = self.status.reserve.version
            self.out.append(ReserveSeen(self.version, self.said))

    def _hear_pulse(self, pulse: Pulse) -> None:
        back = pulse.term > self.term
        if back or (pulse.told, pulse.lost) != (self.told, self.lost):
            self.term, self.told, self.lost = pulse.term, pulse.told, pulse.lost
            if back:  # what was not sent yet was not counted either
                self.said -= sum(not isinstance(message, Heartbeat | ReserveSeen) for message in self.out)
                self.out.clear()
            self.say(Returned(self.rank, self.state, 0, *self.leases.standing(), pulse.issued))

    def hands(self) -> list[Span]:
        """Everything that it holds or may take: no pass that turned out to have another length."""
        if self.state == "done":
            return []
        held, reserve = [*self.leases._held.values(), *self.status.leases], self.status.reserve
        fitting = [span for span in reserve.spans if self.length(span[0]) == reserve.length]
        return [*((each.epoch, each.lo, each.hi) for each in held), *fitting]


class Play:
    """Some trainees and a supervisor that dies; links break; ``leavers`` end their loops. Over when the first ``passes``
    passes are trained on."""

    def __init__(
        self,
        seed: int,
        workers: int,
        deaths: int,
        breaks: int,
        lengths: Sequence[int] = (),
        quiet: float = 0.2,
        passes: int = PASSES,
        leavers: int = 0,
    ) -> None:
        self.chance, self.deaths, self.breaks, self.passes = random.Random(seed), deaths, breaks, passes
        self.leavers = min(leavers, workers - 1)
        self.run = Restarted(workers=workers)
        self.run.train(*range(workers))
        self.team = [Trainee(rank, self.chance, workers, lengths, quiet) for rank in range(workers)]
        self.trained: Counter[tuple[int, int]] = Counter()
        self.order: list[tuple[int, int]] = []
        for one in self.team:
            one.told = len(self.run.sent[b"%d" % one.rank])

    def deliver(self, actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, SendMessage) and action.connection:
                self.team[int(action.connection)].inbox.append(action.message)

    def step(self) -> None:
        run, chance = self.run, self.chance
        one, act = chance.choice(self.team), chance.random()
        if act < 0.03:
            run.now += 0.5
            for each in self.team:
                each.beat(run.now)
            self.deliver(run.take(run.cluster.tick(run.now)))
        elif act < 0.05:
            run.keep()
        elif act < 0.06 and self.deaths:
            self.die()
        elif act < 0.08 and self.breaks:
            self.breaks -= 1
            one.out.clear()
            one.inbox.clear()
        elif act < 0.35 and one.out:
            self.deliver(run.say(one.rank, one.out.popleft()))  # type: ignore[arg-type]
        elif act < 0.62 and one.inbox:
            one.hear()
        elif one.state == "done":
            pass
        elif act < 0.625 and self.leavers:
            self.leavers -= 1
            one.end()
        elif act < 0.67:
            one.say(one.leases.request(one.plan))
        elif act < 0.8:
            one.take()
        elif one.holds:
            self.train(one, one.holds.pop(0))

    def die(self) -> None:
        self.deaths -= 1
        for each in self.team:
            each.inbox.clear()
            if self.chance.random() < 0.5:
                each.out.clear()  # else it waited in a queue, and reaches the next one
        self.run.come_back()

    def train(self, one: Trainee, lease: Lease) -> None:
        indices = [(lease.epoch, index) for index in range(lease.lo, lease.hi)]
        self.trained.update(indices)
        self.order += indices
        one.samples += lease.hi - lease.lo
        one.leases.done(lease)

    def check(self) -> None:
        """No place is in two hands, and none that was trained on is in any."""
        every = [span for one in self.team for span in one.hands()]
        assert count(joined(every)) == count(every), "two have the same places"
        assert not any((epoch, index) in self.trained for epoch, lo, hi in every for index in range(lo, hi))

    @property
    def over(self) -> bool:
        """A pass that is only set aside as yet, for all that the supervisor knows, counts."""
        passes = self.run.cluster.leases.passes
        return all(epoch in passes and passes[epoch].done == self.length(epoch) for epoch in range(self.passes))

    def length(self, epoch: int) -> int:
        return self.team[0].length(epoch)

    def to_the_end(self) -> None:
        """Each place exactly once, and never in two hands."""
        for number in range(30_000):
            self.step()
            if number % 20 == 0:
                self.check()
            if self.over:
                break
        leases = self.run.cluster.leases
        assert self.over, (
            leases.samples_undone,
            leases.returned,
            leases.reserved,
            leases.open,
            self.run.cluster.admission.held,
        )
        assert set(self.trained.values()) == {1}
        indices = Counter(epoch for epoch, _ in self.trained)
        assert all(indices[epoch] == self.length(epoch) for epoch in range(self.passes))


@settings(max_examples=some(60), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(0, 3), st.integers(0, 3))
@example(187, 2, 2, 1)  # taken, then left out of an offer, then offered again by one who had not heard of it
@example(1659310751, 1, 2, 3)  # the pulse that says that something was lost is lost, too
@example(1366710145, 1, 2, 3)  # the whole of the last pass is set aside, and what was taken of it not yet told
def test_each_sample_exactly_once_whenever_the_supervisor_dies(seed: int, workers: int, deaths: int, breaks: int) -> None:
    play = Play(seed, workers, deaths, breaks)
    play.to_the_end()
    assert len(play.trained) == LENGTH * PASSES


@settings(max_examples=some(20), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(0, 3), st.integers(0, 3))
def test_each_sample_exactly_once_where_passes_are_asked_for_one_by_one(
    seed: int, workers: int, deaths: int, breaks: int
) -> None:
    """Also where everybody leaves a pass before it is dealt out: the rest is for whoever asks for a later one."""
    play = Play(seed, workers, deaths, breaks, [LENGTH])
    play.to_the_end()
    assert breaks or play.run.cluster.leases.samples_again == 0  # what a broken link may have taken with it is uncertain


@settings(max_examples=some(60), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.integers(0, 2), st.integers(0, 3), st.booleans())
def test_what_a_worker_has_when_its_loop_is_over_was_touched_by_nobody(
    seed: int, workers: int, deaths: int, breaks: int, one_by_one: bool
) -> None:
    """Leases are asked for ahead: what it did not begin is dealt to others, and not counted as trained on twice."""
    play = Play(seed, workers, deaths, breaks, [LENGTH] if one_by_one else (), leavers=workers - 1)
    play.to_the_end()
    assert breaks or play.run.cluster.leases.samples_again == 0


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(0, 2))
def test_passes_of_different_lengths_one_by_one_are_no_error_though_others_were_set_aside(
    seed: int, workers: int, deaths: int
) -> None:
    """The passes after the first are taken for passes like it, and are not."""
    Play(seed, workers, deaths, 0, [LENGTH, LENGTH // 2], quiet=0.0, passes=3).to_the_end()


@settings(max_examples=some(30), deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans())
def test_who_is_alone_takes_place_after_place_however_late_it_hears_of_them(seed: int, one_by_one: bool) -> None:
    """So that a run of one worker repeats itself to the bit, also where it takes the supervisor for gone."""
    play = Play(seed, 1, 0, 0, [LENGTH] if one_by_one else ())
    for _ in range(30_000):
        play.step()
        if play.over:
            break
    assert play.over and len(play.order) >= LENGTH * PASSES
    assert play.order == sorted(play.order)


@settings(max_examples=some(30), deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.integers(50, 600))
def test_what_a_dead_supervisor_set_aside_is_trained_on_without_it(seed: int, workers: int, life: int) -> None:
    """It dies after so many events and does not come back for long: its workers go on until they have nothing left, and
    what they did is done when it is back."""
    play = Play(seed, workers, 0, 0)
    for _ in range(life):
        play.step()
    for one in play.team:
        one.inbox.clear()
        for _ in range(1000):
            one.take()
            if one.holds:
                play.train(one, one.holds.pop(0))
        assert not one.status.reserve.spans and not one.status.leases
    play.check()
    play.die()
    for number in range(30_000):
        play.step()
        if number % 20 == 0:
            play.check()
        if play.over:
            break
    assert play.over and set(play.trained.values()) == {1}
    assert play.run.cluster.leases.samples_again == 0


def offered(one: Trainee, version: int, *spans: Span) -> list[Span]:
    """What it may take after it was told this."""
    one.inbox.append(Reserve(version, LENGTH, list(spans)))
    one.hear()
    return one.status.reserve.spans


def test_what_was_taken_is_not_taken_again_when_it_was_left_out_once_and_comes_back():
    one = Trainee(0, random.Random(0))
    offered(one, 1, (0, 0, 20))
    one.take()
    (lease,) = one.holds
    assert offered(one, 2, (0, 10, 20)) == [(0, 10, 20)]
    assert offered(one, 3, (0, 0, 20)) == [(0, lease.hi, 20)]
    one.leases.done(lease)
    assert offered(one, 4, (0, 0, 20)) == [(0, lease.hi, 20)]


def test_what_was_taken_is_remembered_until_the_supervisor_must_know():
    one, now = Trainee(0, random.Random(0)), 0.0
    one.leases._session.comm.clock = SimpleNamespace(now=lambda: now)
    offered(one, 1, (0, 0, 100))

    def train() -> None:
        one.take()
        one.leases.done(one.holds.pop())

    train()
    now, one.status.silent_since_s = 5.0, 4.0
    train()
    now = 300.0
    train()
    one.status.silent_since_s, one.status.heard_again_s = None, 300.0  # it is back
    now = 310.0
    train()
    assert len(one.leases.standing()[1]) == 4 and count(one.status.taken) == 20, "it may not have heard of them yet"
    now = 365.0
    train()
    assert [each.lo for each in one.leases.standing()[1]] == [15, 20]
    assert one.status.taken == [(0, 15, 25)]


def busy(run: Restarted, *ranks: int) -> None:
    for rank in ranks:
        run.say(rank, LeaseRequest(0, LENGTH, BATCH, True, PASSES))
        run.say(rank, Heartbeat(Statistics(samples=100, wall_s=1.0), [], said=run.cluster.members.workers[rank].heard))
    run.pass_time(0.6)
    for rank in ranks:
        see(run, rank)


def see(run: Restarted, rank: int, missing: int = 0) -> None:
    run.say(rank, ReserveSeen(run.heard(rank, Reserve)[-1].version, run.cluster.members.workers[rank].heard + missing))


def test_of_what_is_left_three_quarters_are_set_aside_and_told():
    run = Restarted(workers=2)
    run.train(0, 1)
    busy(run, 0, 1)
    told = [run.heard(rank, Reserve)[-1] for rank in (0, 1)]
    indices = [count(each.spans) for each in told]
    left = LENGTH * PASSES - sum(lease.hi - lease.lo for rank in (0, 1) for lease in run.heard(rank, Lease))
    assert 0.65 * left <= sum(indices) <= 0.75 * left
    assert not any(overlap(one, other) for one in told[0].spans for other in told[1].spans)
    assert all(each.length == LENGTH for each in told)


def test_nothing_is_taken_away_before_the_worker_has_seen_it():
    run = Restarted(workers=2)
    run.train(0, 1)
    busy(run, 0, 1)
    theirs = run.heard(1, Reserve)[-1]
    while not run.cluster.admission.held:
        run.say(0, LeaseRequest(0, LENGTH, BATCH, False, PASSES))
    assert not run.heard(0, NoLease)
    smaller = run.heard(1, Reserve)[-1]
    assert smaller.version > theirs.version and count(smaller.spans) < count(theirs.spans)
    dealt = [(lease.epoch, lease.lo, lease.hi) for lease in run.heard(0, Lease)]
    assert not any(overlap(one, other) for one in dealt for other in theirs.spans)
    before = len(dealt)
    see(run, 1, missing=1)  # something that it said before has not come
    assert len(run.heard(0, Lease)) == before
    see(run, 1)
    assert len(run.heard(0, Lease)) > before


def test_only_what_is_set_aside_for_it_can_a_worker_take():
    run = Restarted(workers=2)
    run.train(0, 1)
    busy(run, 0, 1)
    epoch, lo, _ = run.heard(1, Reserve)[-1].spans[0]
    open_before = dict(run.cluster.leases.open)
    for number in (
        own_lease(0, 0),
        own_lease(1, 0),
        5,
    ):  # another's places, another's number, one of a lease that is dealt
        run.say(0, LeaseTaken(Lease(number, epoch, lo, lo + BATCH), LENGTH))
    run.say(1, LeaseTaken(Lease(own_lease(1, 0), epoch, lo, lo + BATCH), LENGTH + 1))
    assert run.cluster.leases.open == open_before
    assert run.cluster.ledger.oddities == 4
    run.say(1, LeaseTaken(Lease(own_lease(1, 0), epoch, lo, lo + BATCH), LENGTH))
    run.say(1, LeaseDone([own_lease(1, 0)]))
    assert run.cluster.leases.passes[epoch].done == BATCH


def test_one_who_is_given_up_leaves_what_it_may_have_begun_counted_and_the_rest_untouched():
    leases = Leases()
    reserves = Reserves(leases)
    ask = LeaseRequest(0, 1000, 10, True, 1)
    told = reserves.balance({0: ask, 1: ask}, {0: 100.0, 1: 100.0}, 0.0)
    indices = count(told[0].spans)
    assert indices == 370
    assert leases.release(0, doubt=40) == 40
    while isinstance(lease := leases.request(1, 0, 1000, batch=10, live_workers=1), Lease):
        leases.done(1, [lease.lease])
    assert leases.samples_again == 40


@pytest.mark.parametrize("indices", [0, 10, 35, 80, 200])
def test_a_reserve_is_cut_between_batches(indices: int):
    spans = [(0, 20, 100), (0, 200, 230), (1, 0, 50)]
    left = trimmed(spans, 0, indices, 10)
    assert count(span for span in left if span[0] == 0) <= indices or indices >= 110
    assert all(lo % 10 == 0 for _, lo, _ in left) and left[-1] == (1, 0, 50)


@pytest.mark.parametrize("workers", [1, 3])
def test_passes_are_trained_on_one_after_the_other(workers: int):
    """Alone, place after place; of several, few places of the next pass come before the last of this one."""
    play = Play(0, workers, 0, 0)
    order: list[tuple[int, int]] = []
    for _ in range(10_000):
        play.run.now += 0.1
        for one in play.team:
            if not any(isinstance(message, LeaseRequest) for message in one.out) and not one.status.leases:
                one.say(LeaseRequest(0, LENGTH, BATCH, True, PASSES))
            one.beat(play.run.now)
            while one.out:
                play.deliver(play.run.say(one.rank, one.out.popleft()))
            while one.inbox:
                one.hear()
            one.take()
            if one.holds:
                lease = one.holds.pop(0)
                order += [(lease.epoch, index) for index in range(lease.lo, lease.hi)]
                play.train(one, lease)
        play.deliver(play.run.take(play.run.cluster.tick(play.run.now)))
        if play.over:
            break
    assert play.over and len(order) == len(set(order)) == LENGTH * PASSES
    early = sum(epoch > 0 for epoch, _ in order[: 1 + max(i for i, (epoch, _) in enumerate(order) if epoch == 0)])
    if workers == 1:
        assert order == sorted(order)
    assert early <= LENGTH // 10


def test_nothing_is_set_aside_for_the_last_moments() -> None:
    """A hundred places a second: with less than two seconds left all is dealt in leases; with later passes, however many,
    there is more. A pass that may have a successor ends like that, too."""
    for length, until, last, aside in (
        (150, 1, True, False),
        (1000, 1, True, True),
        (150, 2**40, True, True),
        (150, 1, False, False),
        (1000, 1, False, True),
    ):
        leases = Leases()
        reserves = Reserves(leases)
        ask = LeaseRequest(0, length, 10, last, until)
        leases.request(0, 0, length, batch=10, live_workers=1)
        told = reserves.balance({0: ask}, {0: 100.0}, 0.0)
        assert any(span[0] == 0 for reserve in told.values() for span in reserve.spans) is aside

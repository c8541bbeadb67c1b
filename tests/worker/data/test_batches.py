"""Leases become batches, for readers that ask ahead of training and for those that do not."""

from __future__ import annotations

from collections import deque
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from taut.core.messages import Lease
from taut.supervisor.data.leases import HOLD, Leases
from taut.worker.data.batches import LATER, BatchPlan, Dealer, LeaseSource, Share
from taut.worker.data.sampling import whole

LENGTH, BATCH = 40, 4


class Waits(Exception):
    """A worker stands still until another has done something."""


class Counter(LeaseSource):
    """The supervisor's own leases, asked directly by worker ``rank`` of two."""

    def __init__(self, leases: Leases, rank: int) -> None:
        self.leases, self.rank = leases, rank

    def take(self, plan: BatchPlan, ahead: bool = False) -> Lease | Literal["later"] | None:
        epoch = self.leases.earliest(plan.first, plan.until - 1, plan.length)
        answer = self.leases.request(
            self.rank,
            epoch,
            plan.length,
            batch=plan.batch_size,
            live_workers=2,
            last=plan.last,
            first=plan.first,
            final=plan.until - 1,
        )
        if answer != HOLD:
            return answer
        if ahead:
            return LATER
        raise Waits

    def done(self, lease: Lease) -> None:
        self.leases.done(self.rank, [lease.lease])


class Reader:
    """A worker that trains one batch at a time, and reads up to ``ahead`` more before that, as a DataLoader does."""

    def __init__(self, leases: Leases, rank: int, ahead: int, passes: tuple[int, int] = (0, 2)) -> None:
        plan = BatchPlan(LENGTH, BATCH, *passes, last=True, order=whole(LENGTH, shuffle=True)[1], drop_last=False)
        self.share: Share = Share(Dealer(Counter(leases, rank), seed=0), plan)
        self.ahead, self.pipe, self.seen = ahead, deque[list[int]](), list[int]()

    def turn(self) -> bool:
        """Train on a batch, or wait; whether anything happened."""
        try:
            while len(self.pipe) <= self.ahead:
                self.pipe.append(next(self.share).tolist())
        except StopIteration:
            pass
        except Waits:
            return False
        if self.pipe:
            self.seen += self.pipe.popleft()
            self.share.trained()
        return True


@given(st.lists(st.booleans(), max_size=60), st.integers(0, 6), st.integers(0, 6))
def test_readers_that_ask_ahead_never_stand_still_and_train_on_each_sample_once_per_pass(
    turns: list[bool], ahead: int, other: int
) -> None:
    leases = Leases()
    readers = [Reader(leases, 0, ahead), Reader(leases, 1, other)]
    for second in turns:
        readers[second].turn()
    while not all(reader.share.over and not reader.pipe for reader in readers):
        moved = [reader.turn() for reader in readers]
        assert any(moved), "each waits for the other"
    assert sorted(readers[0].seen + readers[1].seen) == sorted(2 * list(range(LENGTH)))
    assert leases.samples_undone == 0


def test_a_share_that_is_asked_ahead_goes_on_when_it_is_asked_again() -> None:
    leases = Leases()
    first, second = Reader(leases, 0, 9, (0, 1)), Reader(leases, 1, 0, (0, 1))
    second.pipe.append(next(second.share).tolist())
    while len(first.pipe) + len(second.pipe) < LENGTH // BATCH:
        first.pipe.append(next(first.share).tolist())
    assert list(first.share) == [] and not first.share.over
    second.turn()
    assert list(first.share) == [] and first.share.over


def test_leases_of_another_loop_are_not_waited_for() -> None:
    leases = Leases()
    loops = [[Reader(leases, rank, 0, (0, 1)), Reader(leases, rank, 0, (1, 2))] for rank in (0, 1)]
    for pair in loops:  # as zip(worker.batches(...), worker.batches(...)): a batch of each, untrained
        for reader in pair:
            reader.pipe.append(next(reader.share).tolist())
    while not all(reader.share.over for pair in loops for reader in pair):
        moved = [reader.turn() for pair in loops for reader in pair]
        assert any(moved)
    assert leases.samples_undone == 0


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 6), st.integers(1, 6))
def test_a_loop_that_has_batches_at_hand_gets_the_next_one_or_the_end(turns: list[bool], most: int, other: int) -> None:
    """It is never told to come back later, so it knows which batch is its last; each sample comes once."""
    leases, seen, over = Leases(), list[int](), [0, 0]  # over: passes, of each worker
    dealers = [Dealer(Counter(leases, rank), seed=0) for rank in (0, 1)]
    shares = [Share(dealers[rank], plan_of(0), at_hand) for rank, at_hand in ((0, most), (1, other))]
    pipes: list[deque[list[int]]] = [deque(), deque()]

    def turn(rank: int) -> None:
        share, pipe, at_hand = shares[rank], pipes[rank], (most, other)[rank]
        while len(pipe) <= at_hand and not share.over:
            batch = next(share, None)
            assert batch is not None or share.over
            pipe.extend([] if batch is None else [batch.tolist()])
        if pipe:
            seen.extend(pipe.popleft())
            share.trained()
        elif over[rank] < 1:
            over[rank] += 1
            shares[rank] = Share(dealers[rank], plan_of(1), at_hand)

    for second in turns:
        turn(second)
    while any(pipes) or not all(share.over for share in shares) or min(over) < 1:
        turn(0)
        turn(1)
    assert sorted(seen) == sorted(2 * list(range(LENGTH)))
    assert leases.samples_undone == 0


def plan_of(epoch: int) -> BatchPlan:
    return BatchPlan(LENGTH, BATCH, epoch, epoch + 1, last=False, order=whole(LENGTH, shuffle=True)[1], drop_last=False)

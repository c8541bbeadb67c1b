"""The batches of an island: process 0 gets them from its leases, and tells the others which samples each has.

Where batches are ``split`` (FSDP, which averages gradients), process i of p reads the samples i, i + p, ... of each. All
read equally many, so that the mean of their means is the batch's: where p does not divide a batch, its first samples
count twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from taut.core.callbacks import do_nothing
from taut.worker.data.batches import BatchPlan, Dealer, Indices, Share
from taut.worker.data.global_batch import GlobalShare
from taut.worker.joining.island_member import BATCH, OVER, PIECE, TURN

if TYPE_CHECKING:
    from taut.core.messages import Lease
    from taut.parallel.island import Island
    from taut.worker.joining.island_member import IslandMember
    from taut.worker.session import WorkerSession


def part_of(batch: Indices, group: Island) -> Indices:
    """Return what this process of an island reads of a batch that is split.

    >>> from taut.parallel.island import Island
    >>> [part_of(np.arange(5), Island(rank, 2)).tolist() for rank in (0, 1)]
    [[0, 2, 4], [1, 3, 0]]
    """
    each = -(-len(batch) // group.size)
    return batch[(group.rank + group.size * np.arange(each)) % len(batch)]


Parts = Sequence[tuple["Lease", int, bool]]  # of a batch: its leases, with its samples of each


class LeadingShare(Share):
    """Process 0's batches: each is told to the others before it is trained on."""

    def __init__(self, dealer: Dealer, plan: BatchPlan, member: IslandMember, session: WorkerSession) -> None:
        super().__init__(dealer, plan)
        self._member, self._session = member, session

    def __next__(self) -> Indices:
        exchange = self._session.exchange
        try:
            if self._session.stopping:  # agreed here, and nowhere else: the others go on until they are told
                self.over = self.stopped = True
                raise StopIteration
            exchange.before_own_turn = self._say_turn
            batch = super().__next__()
        except StopIteration:
            self._member.say(OVER, int(self.over), int(self.stopped), 0)
            raise
        finally:
            exchange.before_own_turn = do_nothing
        pieces = list(self._pieces())
        for number, (epoch, start, samples) in enumerate(pieces, 1):
            self._member.say(BATCH if number == len(pieces) else PIECE, epoch, start, samples)
        return part_of(batch, self._member.group) if self._plan.split else batch

    def _say_turn(self) -> None:
        self._member.say(TURN, 0, 0, 0)

    def _under_way(self) -> list[Parts]:
        """Return the batches that were not trained on yet, the last one last."""
        return [[each] for each in self._handed]

    def _pieces(self) -> Iterator[tuple[int, int, int]]:
        """Yield where the last batch's samples are: the pass, the first one's place in it, and how many follow."""
        *before, last = self._under_way()
        ends = dict(self._dealer.progress)
        for lease, samples, _ in (part for parts in before for part in parts):
            ends[lease.lease] = ends.get(lease.lease, 0) + samples
        for lease, samples, _ in last:
            yield lease.epoch, lease.lo + ends.get(lease.lease, 0), samples


class LeadingGlobalShare(LeadingShare, GlobalShare):
    """Process 0's parts of the global batch."""

    def _under_way(self) -> list[Parts]:
        return list(self._given)


class FollowingShare(Share):
    """Another process's batches: the same samples, in the same order."""

    def __init__(self, dealer: Dealer, plan: BatchPlan, member: IslandMember, session: WorkerSession) -> None:
        super().__init__(dealer, plan)
        self._member, self._session = member, session
        self._waiting: list[int] = []
        self.over = False

    def __next__(self) -> Indices:
        pieces: list[Indices] = []
        kind = PIECE
        while kind == PIECE:
            kind, epoch, start, samples = self._member.hear(self._session)
            if kind == OVER:
                self.over, self.stopped = bool(epoch), bool(start)
                raise StopIteration
            pieces.append(self._dealer.pass_order(epoch, self._plan)[start : start + samples])
        self._waiting.append(sum(map(len, pieces)))
        batch = np.concatenate(pieces)
        return part_of(batch, self._member.group) if self._plan.split else batch

    def handed(self) -> int:
        return self._waiting[0] if self._waiting else 0

    def trained(self) -> int:
        return self._waiting.pop(0)


def island_share(dealer: Dealer, plan: BatchPlan, member: IslandMember, session: WorkerSession) -> Share:
    """Return the share of this process of an island."""
    leading = LeadingShare if plan.pace is None else LeadingGlobalShare
    return (FollowingShare if member.group.rank else leading)(dealer, plan, member, session)

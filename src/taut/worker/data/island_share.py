"""The batches of an island: process 0 gets them from its leases, and tells the others which samples each has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taut.core.callbacks import do_nothing
from taut.worker.data.batches import BatchPlan, Dealer, Indices, Share
from taut.worker.island_member import BATCH, OVER, TURN

if TYPE_CHECKING:
    from taut.core.messages import Lease
    from taut.worker.island_member import IslandMember
    from taut.worker.session import WorkerSession


class LeadingShare(Share):
    """Process 0's batches: each is told to the others before it is trained on."""

    def __init__(self, dealer: Dealer, plan: BatchPlan, member: IslandMember, session: WorkerSession) -> None:
        super().__init__(dealer, plan)
        self._member, self._session = member, session

    def __next__(self) -> Indices:
        try:
            if self._session.stopping:  # agreed here, and nowhere else: the others go on until they are told
                self.over = self.stopped = True
            self._session.exchange.before_own_turn = self._say_turn
            batch = super().__next__()
        except StopIteration:
            self._member.say(OVER, int(self.over), int(self.stopped), 0)
            raise
        finally:
            self._session.exchange.before_own_turn = do_nothing
        lease, samples, _ = self._handed[-1]
        self._member.say(BATCH, lease.epoch, self._start(lease, batch), samples)
        return batch

    def _say_turn(self) -> None:
        self._member.say(TURN, 0, 0, 0)

    def _start(self, lease: Lease, batch: Indices) -> int:
        """Return where in its pass the batch begins."""
        before = sum(samples for held, samples, _ in self._handed if held is lease) - len(batch)
        return lease.lo + self._dealer.progress.get(lease.lease, 0) + before


class FollowingShare(Share):
    """Another process's batches: the same samples, in the same order."""

    def __init__(self, dealer: Dealer, plan: BatchPlan, member: IslandMember, session: WorkerSession) -> None:
        super().__init__(dealer, plan)
        self._member, self._session = member, session
        self._waiting: list[int] = []
        self.over = False

    def __next__(self) -> Indices:
        kind, epoch, start, samples = self._member.hear(self._session)
        if kind == OVER:
            self.over, self.stopped = bool(epoch), bool(start)
            raise StopIteration
        self._waiting.append(samples)
        return self._dealer.pass_order(epoch, self._plan)[start : start + samples]

    def handed(self) -> int:
        return self._waiting[0] if self._waiting else 0

    def trained(self) -> int:
        return self._waiting.pop(0)

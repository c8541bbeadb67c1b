"""Batches whose sizes add up to a global batch over all workers.

Where all workers meet in rounds and count by their samples (``Method.shares_speeds``), this worker's part follows its
speed (``batch_share.py``). Under other strategies all workers have equal parts. A batch may take samples of several
leases, since a lease's last samples alone would make a short round. It never waits for a lease while it holds samples of
another: the supervisor may hold the request back until those are trained on.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from taut.core.messages import Lease
from taut.errors import Misuse
from taut.strategies.allreduce.round_speeds import RoundSpeeds
from taut.worker.data.batch_share import LEAST, BatchShare
from taut.worker.data.batches import LATER, BatchPlan, Dealer, Indices, Share

if TYPE_CHECKING:
    from taut.worker.exchange.base import Exchange
    from taut.worker.time_split import Stopwatch

EXPECTED = "a whole number of samples, at least one for each worker"


def check_global_batch(global_batch: int, batch_size: int | None, drop_last: bool | None, workers: int) -> int:
    """Return an equal part of the global batch. Raises ``Misuse`` if it cannot be shared."""
    if batch_size is not None:
        given = f"batch_size={batch_size} and global_batch={global_batch}"
        raise Misuse(given, "one of them", "batch_size is of each worker, global_batch of all together")
    if not isinstance(global_batch, int) or isinstance(global_batch, bool) or not 1 <= global_batch < 2**31:
        raise Misuse(f"global_batch={global_batch!r}", EXPECTED)
    if global_batch < workers:
        raise Misuse(
            f"global_batch={global_batch} with {workers} workers", EXPECTED, "take a larger one, or fewer workers"
        )
    if drop_last:
        remedy = "leave it out: under sync the learning rate of a short last round is scaled down"
        raise Misuse("drop_last=True with global_batch", "all samples of a pass", remedy)
    return global_batch // workers


class GlobalShare(Share):
    """This worker's batches of indices, each as large as ``plan.size`` says when it is asked for."""

    def __init__(self, dealer: Dealer, plan: BatchPlan) -> None:
        super().__init__(dealer, plan)
        self._given: deque[list[tuple[Lease, int, bool]]] = (
            deque()
        )  # of each batch: its leases, samples, whether the last
        self._lease: Lease | None = None
        self._left: Indices = np.empty(0, np.int64)  # of the lease at hand
        self._following: Lease | None = None  # taken while one sample of that was left

    def __next__(self) -> Indices:
        size, parts, pieces = self._plan.size, list[tuple[Lease, int, bool]](), list[Indices]()
        while size > 0 and self._have(ahead=bool(self._given or parts)):
            assert self._lease is not None
            taken = size + self._leaves_one(size)
            piece, self._left = self._left[:taken], self._left[taken:]
            parts.append((self._lease, len(piece), not len(self._left)))
            pieces.append(piece)
            size -= len(piece)
        if not parts:
            raise StopIteration
        self._given.append(parts)
        return np.concatenate(pieces)

    def _have(self, ahead: bool) -> bool:
        """Return whether samples are at hand: of the present lease, or of the next one."""
        source = self._dealer.source
        if self._lease is not None and len(self._left) and not source.holds(self._lease):
            self._left = self._left[:0]
        while not (self.over or len(self._left)):
            following, self._following = self._following, None
            held = following is not None and source.holds(following)
            lease = following if held else source.take(self._plan, ahead)
            if lease == LATER:
                return False
            if lease is None:
                self.over = True
            else:
                self._lease, self._left = lease, self._dealer.samples_of(lease, self._plan)
        return len(self._left) > 0

    def _leaves_one(self, size: int) -> bool:
        """Return whether a batch that takes ``size`` samples more would leave one, for a batch of its own: no other lease
        is at hand. Batch norm cannot train on one sample."""
        if len(self._left) != size + 1 or self._plan.size < LEAST:
            return False
        if self._following is None:
            lease = self._dealer.source.take(self._plan, True)
            self._following = None if lease == LATER else lease
        return self._following is None

    def handed(self) -> int:
        return sum(samples for _, samples, _ in self._given[0]) if self._given else 0

    def trained(self) -> int:
        parts = self._given.popleft()
        for part in parts:
            self._dealer.trained(*part)
        return sum(samples for _, samples, _ in parts)


class Pacer:
    """Measures the computing of each batch, tells the others, and moves this worker's share. ``share``: None for batches
    of a fixed size."""

    def __init__(self, share: BatchShare | None, watch: Stopwatch) -> None:
        self.share, self._watch = share, watch
        self._computed_s = 0.0

    def begin(self, exchange: Exchange | None, samples: int, workers: int) -> None:
        """Note that a batch of so many samples is handed out."""
        if self.share is not None:
            self._watch.weigh(samples * workers / self.share.global_batch)
            self._computed_s = self._watch.seconds["compute"]
        self._tell(exchange, workers)

    def end(self, exchange: Exchange | None, samples: int, workers: int) -> None:
        """Note that the batch was trained on, and its computing charged."""
        if self.share is not None:
            self.share.measured(samples, self._watch.seconds["compute"] - self._computed_s)
            self._tell(exchange, workers)

    def _tell(self, exchange: Exchange | None, workers: int) -> None:
        """Tell the others, in the next round, how fast this worker is, and follow what was told in the last one."""
        share = self.share
        if share is None:
            if exchange is not None:
                exchange.share_speed(0, 0.0)
            return
        speeds = None if exchange is None else exchange.share_speed(share.global_batch, share.speed)
        if speeds is not None:
            share.follow(speeds)
        elif exchange is None or not exchange.shares_speeds:
            share.follow(RoundSpeeds(0.0, 0, workers))

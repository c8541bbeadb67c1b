"""The loops of a script over its data: which samples this worker is dealt, and what was trained on of them.

``worker.batches``, ``worker.rounds`` and ``worker.read_ahead`` are made here. The law: a sample counts as trained once
the step with its batch was made, and not before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from taut.core.messages import Statistics
from taut.errors import Misuse, Stopping
from taut.worker.clients.rounds import Parts, Rounds
from taut.worker.clients.trainer import Trainer, refuse_clients
from taut.worker.data.batch_share import BatchShare
from taut.worker.data.batches import Batches, BatchPlan, Dealer, OwnLeases, Share
from taut.worker.data.global_batch import GlobalShare, Pacer, check_global_batch
from taut.worker.data.island_share import island_share
from taut.worker.data.own_data import OwnDealer, check_own
from taut.worker.data.read_ahead import NO_MORE, ReadAhead
from taut.worker.data.reading import Data, data_of
from taut.worker.data.sampling import check_order
from taut.worker.data.streams import ShardShare, check_alone, check_indexed, unknown_length
from taut.worker.joining.rejoin import SessionLeases

if TYPE_CHECKING:
    import torch

    from taut.worker.model.master_weights import MasterWeights
    from taut.worker.participant import Participant
    from taut.worker.session import WorkerSession


log = logging.getLogger("taut")


class DataLoops:
    """The loops over data of ``worker``, in ``session`` if it is in a run. ``seed``: of the order of a worker alone."""

    def __init__(self, worker: Participant, session: WorkerSession | None, seed: int) -> None:
        self._worker, self._session = worker, session
        self._member = session.member if session else None
        self.dealer = Dealer(SessionLeases(session) if session else OwnLeases(), session.seed if session else seed)
        self.own = OwnDealer(session, self.dealer.seed)
        self._open: list[Share] = []  # those that a loop of the script is reading
        self._pacers: dict[int, Pacer] = {}  # by the global batch: what was measured in one loop counts in the next
        self.rounds_made: Rounds | None = None  # of clients
        self.used = False  # the script has asked for data: its loop ends when the run does
        self._warned_few = False
        self._passes_refused = 0  # calls of batches() that found the run stopping

    @property
    def reading(self) -> bool:
        """Return whether a loop of the script is within its data."""
        return bool(self._open)

    @property
    def passes(self) -> int:
        """Return how many passes were begun, over the run's data or this worker's own."""
        return max(self.dealer.reached, self.own.reached)

    def handed_samples(self) -> int:
        """Return the samples of the batches at hand."""
        return sum(share.handed() for share in self._open)

    def noted(self, statistics: Statistics) -> Statistics:
        """Return the statistics with what is left undone of own data, and with the clients that were trained."""
        mine = self.own.noted(statistics)
        return mine if self.rounds_made is None else self.rounds_made.noted(mine)

    def end_rounds(self) -> None:
        """Give up the round of clients that is open, if there is one."""
        if self.rounds_made is not None:
            self.rounds_made.close()

    def batches(
        self,
        dataset: Any,
        batch_size: int | None,
        global_batch: int | None,
        epochs: int | None,
        shuffle: bool | None,
        drop_last: bool | None,
        order: str | None,
        own: bool,
        split: bool,
        loader: dict[str, Any],
    ) -> Batches:
        """Return this worker's share of ``dataset``, as ``SessionWorker.batches`` describes it."""
        self._worker.check_open("batches")
        refuse_clients(self._worker.exchange_now(), "worker.batches")
        if self.rounds_made is not None:
            raise Misuse("worker.batches in a script with worker.rounds", "client.batches, within a round")
        stretches = order is not None
        if stretches:
            shuffle = check_order(order, global_batch, shuffle, self._member is not None)
        if split and self._member is not None:
            self._member.check_split()
        if own:
            check_own(dataset, global_batch, loader.get("sampler"))
        data, pacer = self._read(dataset, batch_size, global_batch, shuffle, drop_last, loader | {"own_data": own})
        dealer = self.own if own else self.dealer
        first, until = dealer.passes(1 if epochs is None else epochs)
        size, last = data.batch_size, epochs is not None
        asked = (data.length, size, first, until, last, data.order, data.drop_last, data.samples, stretches)
        plan = BatchPlan(*asked, pace=pacer.share, split=split)
        if not own:
            self._warn_few(plan, data.streams)
        share = self._share_of(dealer, plan, data.streams)
        dealt = self._deal(share, data.read(share, first), pacer)
        place = share.place if stretches else None
        if data.streams:
            return Batches(dealt, unknown_length, place)
        return Batches(dealt, lambda: plan.batches(dealer.complete) if own else self._share(plan, dealer.complete), place)

    def rounds(self, parts: Parts, rounds: int, masters: MasterWeights, weights: Sequence[torch.Tensor]) -> Rounds:
        """Return rounds of clients, as ``SessionWorker.rounds`` describes them; a client moves ``weights``."""
        buffers = [each.detach() for each in self._worker.model.buffers() if each.is_floating_point()]
        deal = lambda share, batches: self._deal(share, batches, Pacer(None, self._worker.watch))  # noqa: E731
        trainer = Trainer(self._worker, self._session, masters, weights, buffers, self.dealer.seed, deal)
        self.rounds_made = Rounds(trainer, parts, rounds)
        self.used = True
        return self.rounds_made

    def read_ahead(self, dataset: Any, batch_size: int | None, most: int, loader: dict[str, Any]) -> ReadAhead:
        """Return the batches of one pass, as ``SessionWorker.read_ahead`` describes them."""
        if self._member is not None:
            raise Misuse("read_ahead in an island", "a run without islands", "call worker.batches, and no batch ahead")
        refuse_clients(self._worker.exchange_now(), "worker.read_ahead")
        data = data_of(dataset, batch_size, **loader)
        check_indexed(data.streams, "read_ahead")
        first, until = self.dealer.passes(1)
        plan = BatchPlan(data.length, data.batch_size, first, until, False, data.order, data.drop_last, data.samples)
        share = Share(self.dealer, plan, most)
        self.used = True
        return ReadAhead(self._worker, self._open, share, data.read(share, first))

    def _warn_few(self, plan: BatchPlan, shards: bool) -> None:
        """Warn once where a pass has fewer batches, or shards, than there are workers."""
        parts, workers = plan.length if shards else -(-plan.length // plan.batch_size), self._worker.workers
        if plan.pace is None and parts < workers and self._worker.is_main and not self._warned_few:
            self._warned_few = True
            few = f"{plan.length:,} samples in batches of {plan.batch_size:,} make {parts} a pass, "
            few, remedy = (f"{parts} shards ", "make more of them") if shards else (few, "take a smaller batch_size")
            log.warning("%sfor %d workers: some have nothing to do; %s", few, workers, remedy)

    def _share_of(self, dealer: Dealer, plan: BatchPlan, streams: bool) -> Share:
        if streams:
            check_alone(self._member is not None)
            return ShardShare(dealer, plan)
        if self._member is not None and self._session is not None:
            return island_share(dealer, plan, self._member, self._session)
        return Share(dealer, plan) if plan.pace is None else GlobalShare(dealer, plan)

    def _read(
        self,
        dataset: Any,
        batch_size: int | None,
        global_batch: int | None,
        shuffle: bool | None,
        drop_last: bool | None,
        loader: dict[str, Any],
    ) -> tuple[Data, Pacer]:
        """Return how the data is read, and what moves this worker's share of the global batch, if there is one."""
        if global_batch is None:
            return data_of(dataset, batch_size, shuffle, drop_last, **loader), Pacer(None, self._worker.watch)
        exchange = self._worker.exchange_now()
        if exchange is not None and exchange.scaling is not None:
            remedy = "with a global batch a step has as many samples whoever joins or leaves: drop --scale-lr"
            raise Misuse(f"global_batch={global_batch} with --scale-lr {exchange.scaling}", "one of them", remedy)
        part = check_global_batch(global_batch, batch_size, drop_last, self._worker.workers)
        data = data_of(dataset, part, shuffle, drop_last, **loader)
        check_indexed(data.streams, f"global_batch={global_batch}")
        check_global_batch(global_batch, None, data.drop_last, self._worker.workers)
        return data, self._pacers.setdefault(
            global_batch, Pacer(BatchShare(global_batch, self._worker.workers), self._worker.watch)
        )

    def total_steps(
        self,
        dataset: Any,
        batch_size: int | None,
        global_batch: int | None,
        epochs: int,
        drop_last: bool | None,
        loader: dict[str, Any],
    ) -> int:
        """Return how many batches this worker will get, as ``SessionWorker.total_steps`` describes it."""
        data, pacer = self._read(dataset, batch_size, global_batch, None, drop_last, loader)
        check_indexed(data.streams, "total_steps")
        plan = BatchPlan(data.length, data.batch_size, 0, epochs, True, data.order, data.drop_last, pace=pacer.share)
        return self._share(plan)

    def _share(self, plan: BatchPlan, complete: int = 0) -> int:
        """Return this worker's part of the batches of all, rounded up. Of each global batch it has one."""
        batches = plan.batches(complete)
        return batches if plan.pace is not None else -(-batches // max(1, self._worker.workers))

    def _deal(self, share: Share, batches: Iterator[Any], pacer: Pacer) -> Iterator[Any]:
        self.used = True
        self._worker.watch.charge("compute")
        if self._worker.stopping and self._member is None:
            self._refuse_pass()
            return
        self._open.append(share)
        try:
            yield from self._dealt(share, batches, pacer)
        finally:
            self._open.remove(share)
        if share.stopped:
            self._refuse_pass()

    def _refuse_pass(self) -> None:
        self._passes_refused += 1
        if self._passes_refused > 1:
            raise Stopping  # a loop that asks for pass after pass would never end

    def _dealt(self, share: Share, batches: Iterator[Any], pacer: Pacer) -> Iterator[Any]:
        accumulating = False
        while True:
            batch = self._worker.next_batch(batches, accumulating)
            if batch is NO_MORE:
                return
            exchange = self._worker.exchange_now()
            paced = pacer.share is not None or (exchange is not None and exchange.shares_speeds)
            if paced:
                pacer.begin(exchange, share.handed(), self._worker.workers)
            steps = self._worker.steps
            try:
                yield batch
            except GeneratorExit:  # the script leaves its loop: the batch counts if a step was made with it
                if self._worker.steps > steps and not self._worker.closed:
                    self._worker.samples += share.trained()
                raise
            self._worker.exchange_if_forgotten()
            self._worker.watch.charge("compute")
            accumulating = self._worker.steps == steps  # this batch's gradients wait for those of the next
            trained = self._worker.count_trained(share)
            if paced:
                pacer.end(self._worker.exchange_now(), trained, self._worker.workers)

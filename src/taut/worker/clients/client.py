"""One client in one round, on the worker that trains it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from taut.worker.data.batches import Batches, BatchPlan, Dealer, OwnLeases, Share
from taut.worker.data.own_data import check_own
from taut.worker.data.reading import data_of
from taut.worker.data.streams import ShardShare, unknown_length

if TYPE_CHECKING:
    from taut.worker.clients.trainer import Trainer

CALLS = 2**32  # passes of a client's next call of ``batches`` have numbers from there on


class Client:
    """A client that is trained now. ``number``: which one, from 0; ``data``: its entry in what ``worker.rounds`` was
    given; ``round``: the number of the round."""

    def __init__(self, trainer: Trainer, number: int, data: Any, round: int) -> None:
        self.number, self.data, self.round = number, data, round
        self.dropped = False
        self._trainer, self._before, self._calls = trainer, trainer.worker.samples, 0

    def __repr__(self) -> str:
        return f"<client {self.number} in round {self.round}>"

    @property
    def samples(self) -> int:
        """Return how many samples the client was trained on in this round: its weight in the mean."""
        return self._trainer.worker.samples - self._before

    def batches(
        self,
        dataset: Any = None,
        batch_size: int | None = None,
        *,
        epochs: int = 1,
        shuffle: bool | None = None,
        drop_last: bool | None = None,
        **loader: Any,
    ) -> Batches:
        """Return the batches of ``epochs`` passes over this client's data, as ``worker.batches(own=True)`` does. Their
        order depends on the run's seed and the round, and not on the worker.

        ``dataset``: the client's own; None: ``data``."""
        dataset = self.data if dataset is None else dataset
        check_own(dataset, None, loader.get("sampler"), f"client {self.number}")
        data = data_of(dataset, batch_size, shuffle, drop_last, own_data=True, **loader)
        first = CALLS * self._calls + epochs * self.round
        self._calls += 1
        plan = BatchPlan(data.length, data.batch_size, first, first + epochs, True, data.order, data.drop_last)
        share = (ShardShare if data.streams else Share)(Dealer(OwnLeases(), self._trainer.seed), plan)
        dealt = self._trainer.deal(share, data.read(share, first))
        return Batches(dealt, unknown_length if data.streams else plan.batches)

    def drop(self) -> None:
        """Leave this client out of the round: what it was trained on does not count."""
        self.dropped = True

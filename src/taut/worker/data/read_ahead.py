"""Batches for a loop that asks for some of them before it trains on the first, as the loops of other libraries do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taut.worker.data.batches import Share
    from taut.worker.participant import Participant

NO_MORE: Any = object()


class ReadAhead(Iterator[Any]):
    """The result of ``worker.read_ahead``: ``trained()`` counts the oldest batch that is at hand.

    The law: a sample is counted as trained after its batch was, however far ahead batches are read.
    """

    def __init__(self, worker: Participant, open_shares: list[Share], share: Share, batches: Iterator[Any]) -> None:
        self._worker, self._open, self._share, self._batches = worker, open_shares, share, batches
        self._at_hand, self._steps, self._accumulating = 0, worker.steps, False
        self.over = False  # no batch follows, though some may be at hand
        open_shares.append(share)

    def __next__(self) -> Any:
        batch = NO_MORE if self.over else self._worker.next_batch(self._batches, self._accumulating)
        if batch is NO_MORE:
            self.over = True
            self._leave()
            raise StopIteration
        self._at_hand += 1
        return batch

    def trained(self) -> None:
        """Note that the oldest batch at hand was trained on."""
        worker = self._worker
        worker.exchange_if_forgotten()
        worker.watch.charge("compute")
        worker.count_trained(self._share)
        self._accumulating, self._steps = worker.steps == self._steps, worker.steps
        self._at_hand -= 1
        self._leave()

    def close(self) -> None:
        """Leave the pass: batches at hand are left undone."""
        self.over, self._at_hand = True, 0
        self._leave()

    def _leave(self) -> None:
        if self.over and not self._at_hand and self._share in self._open:
            self._open.remove(self._share)

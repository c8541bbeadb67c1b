"""A DataLoader of another library's trainer as this worker's share of it: pass by pass, what ``read_ahead`` deals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, IterableDataset

from taut.errors import Misuse
from taut.worker.data.reading import data_of

if TYPE_CHECKING:
    from taut.worker.data.read_ahead import ReadAhead
    from taut.worker.torch_worker import TorchWorker


def check_leased(dataset: Any) -> None:
    """Raise ``Misuse`` for a stream, whose samples have no index to be leased by."""
    if isinstance(dataset, IterableDataset):
        raise Misuse(
            "an IterableDataset as the training data of a trainer",
            "a data set with __len__ and __getitem__, whose samples are leased by their index",
            "read the stream into a list; or write the loop yourself, with worker.batches(stream, own=True)",
        )


class LeasedLoader:
    """``loader``, as it is dealt to ``worker``, which is there before the first pass. The trainer begins a pass by
    ``iter``, and has up to ``ahead`` batches at hand before it trains on the first. It has no length: a fast worker gets
    more batches. Raises ``Misuse`` for what cannot be dealt.

    ``passes``: how many were begun; ``batches``: how many of this one were trained on.
    """

    def __init__(self, loader: Any, ahead: int, worker: TorchWorker | None = None) -> None:
        if not isinstance(loader, DataLoader):
            raise Misuse(f"training data as {type(loader).__name__}", "a DataLoader of torch's")
        check_leased(loader.dataset)
        data_of(loader)
        self.loader, self.worker, self.passes, self.batches = loader, worker, 0, 0
        self._ahead = ahead
        self._read: ReadAhead | None = None

    def __iter__(self) -> Iterator[Any]:
        assert self.worker is not None, "the training has begun"
        self.leave()
        self.passes, self.batches = self.passes + 1, 0
        self._read = self.worker.read_ahead(self.loader, most=self._ahead)
        return self._read

    def trained(self) -> None:
        """Note that the oldest batch at hand was trained on."""
        if self._read is not None:
            self._read.trained()
            self.batches += 1

    def leave(self) -> None:
        """Leave the pass, if one is begun: batches at hand are left undone."""
        if self._read is not None:
            self._read.close()
            self._read = None

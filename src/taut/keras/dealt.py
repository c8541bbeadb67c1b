"""The data of ``model.fit`` as it is dealt to all workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch.utils.data import DataLoader, default_collate

from taut.worker.data.reading import data_of

if TYPE_CHECKING:
    from taut.worker.data.read_ahead import ReadAhead
    from taut.worker.torch_worker import TorchWorker

NOTHING: Any = object()
_GIVEN: WeakKeyDictionary[TorchWorker, Dealt] = WeakKeyDictionary()  # which has given the last batch


class Dealt(DataLoader[Any]):
    """A DataLoader for ``model.fit(Dealt(worker, (x, y), batch_size=32), epochs=10)``: pass by pass the batches that
    are dealt to this worker. ``data``, ``batch_size``, ``loader``: as in ``worker.batches``.

    Its length is that of a whole pass. A batch that Keras looks at, and does not train on, is given again.
    """

    def __init__(self, worker: TorchWorker, data: Any, batch_size: int | None = None, **loader: Any) -> None:
        known = data_of(data, batch_size, **loader)
        super().__init__(range(known.length), known.batch_size)  # type: ignore[arg-type]
        _build_metrics(worker.model, _tensors(_sample(data, loader.get("collate_fn", default_collate))))
        self._of_worker = worker, data, batch_size, loader
        self._read: ReadAhead | None = None
        self._at_hand: Any = NOTHING  # a batch that was given, and not trained on

    def __iter__(self) -> Any:
        worker, data, batch_size, loader = self._of_worker
        if self._at_hand is NOTHING or self._read is None:
            if self._read is not None:
                self._read.close()
            self._read = worker.read_ahead(data, batch_size, most=0, **loader)
        while True:
            if self._at_hand is NOTHING:
                self._at_hand = next(self._read, NOTHING)
            if self._at_hand is NOTHING:
                return
            _GIVEN[worker] = self
            yield _tensors(self._at_hand)
            self.trained()

    def trained(self) -> None:
        """Count the batch that was given, if it is not counted yet."""
        if self._at_hand is not NOTHING and self._read is not None:
            self._at_hand = NOTHING
            self._read.trained()


def count_batch(worker: TorchWorker) -> None:
    """Count the batch that ``worker`` has made a step with: Keras does not ask for another one after the last."""
    if worker in _GIVEN:
        _GIVEN[worker].trained()


def _build_metrics(model: Any, sample: Any) -> None:
    """Have Keras make the model's metrics: ``fit`` would ask for a batch, and a resumed run may have none in its first
    passes."""
    import keras

    model.test_on_batch(*keras.utils.unpack_x_y_sample_weight(sample))
    model.reset_metrics()


def _sample(data: Any, collate: Callable[[Any], Any]) -> Any:
    """Return a batch of ``data`` with one sample or more."""
    if isinstance(data, DataLoader):
        return next(iter(data))
    if isinstance(data, tuple | list) and all(isinstance(each, np.ndarray | torch.Tensor) for each in data):
        return tuple(each[:1] for each in data)
    return data[:1] if isinstance(data, np.ndarray | torch.Tensor) else collate([data[0]])


def _tensors(batch: Any) -> Any:
    """Return a batch with arrays as tensors, as DataLoaders have them."""
    if isinstance(batch, tuple | list):
        return type(batch)(map(_tensors, batch))
    return torch.from_numpy(batch) if isinstance(batch, np.ndarray) else batch

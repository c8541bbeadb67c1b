"""A worker in a run of one or of many, whatever computes its gradients: its data, the exchange after a step, its end.

It moves one flat vector. ``taut.join`` makes that of a PyTorch model's parameters, ``taut.join_vector`` of an array of
the script's own. ``optimizer`` makes a step: PyTorch's, or a function of the script's (``vector/update_function.py``).
"""

from __future__ import annotations

import logging
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from taut.core.messages import Done, Failed
from taut.errors import Misuse, NonFiniteLoss, PeerLost, Stopping, SupervisorLost
from taut.worker.clients.rounds import Parts, Rounds
from taut.worker.data.batches import Batches, Share
from taut.worker.data.read_ahead import NO_MORE, ReadAhead
from taut.worker.optimizer.local_step import needs_closure
from taut.worker.participant import Participant

if TYPE_CHECKING:
    import torch


log = logging.getLogger("taut")


class SessionWorker(Participant):
    """What every worker of a run has; what makes a step is its subclass's (``TorchWorker``, ``VectorWorker``).

    ``rank`` is this worker's number, never used twice in a run; ``workers`` is how many there are at the moment;
    ``stopping`` turns true when the run is being drained; ``score`` is, after the end, what the validation function says
    of this worker's replica.
    """

    def batches(
        self,
        dataset: Any,
        batch_size: int | None = None,
        *,
        global_batch: int | None = None,
        epochs: int | None = None,
        shuffle: bool | None = None,
        drop_last: bool | None = None,
        order: Literal["sequential"] | None = None,
        own: bool = False,
        split: bool = False,
        **loader: Any,
    ) -> Batches:
        """Return this worker's share of ``dataset``, batch by batch; over all workers each sample comes once per pass.

        ``dataset``: tensors or arrays (or a tuple of them), any map-style data set, or a ``DataLoader``: its data set,
        batch size, order, collation and processes are taken over, or refused. ``epochs``: how many passes; by default
        one, so that ``for epoch in range(5): for x, y in worker.batches(...)`` works too. With ``epochs`` given, the
        samples of a worker that dies in the last pass are still trained on by the others. ``shuffle`` is true by
        default, or as the DataLoader's sampler is. ``global_batch``, instead of ``batch_size``: the samples of a step of
        all workers together. Where workers meet in rounds (``sync``, ``averaging``) this worker's part follows its speed;
        else all parts are equal. ``loader``: options of ``DataLoader``.

        ``order="sequential"``: batches follow each other in the data, in stretches that are as long as the leases, for a
        hidden state that is carried over; ``follows`` of the result says whether the batch at hand does.

        Data without an index: of ``taut.data.Shards`` each worker gets whole shards; an ``IterableDataset`` is read by
        each worker for itself, with ``own``.

        ``own``: ``dataset`` is this worker's alone. Nothing of it is leased to others: this worker goes through all of
        it in each pass, and counts in averages by its samples.

        ``split``: in an island under FSDP, each process reads its part of every batch, and not the whole of it.

        The length, ``len(worker.batches(...))``, is this worker's expected share, as in ``total_steps``.
        """
        return self._data.batches(
            dataset, batch_size, global_batch, epochs, shuffle, drop_last, order, own, split, loader
        )

    def rounds(self, parts: Parts, rounds: int) -> Rounds:
        """Return rounds of clients, which may outnumber the workers; each gives the clients that this worker trains in
        it: ``for round in worker.rounds(parts, 50): for client in round: for x, y in client.batches(...)``.

        ``parts``: an entry for each client, its data (``client.data``), or a function from the client's number to it.
        Between two rounds the model is the mean of all clients of the last one. Alone, this worker trains all clients.
        """
        weights = [each.data for each in self._trained] if self._session is None else [self._session.params.tensor]
        weights = [each.data for each in self._trained] if self._session is None else [self._session.params.tensor]
        return self._data.rounds(parts, rounds, self._masters, weights)

    def read_ahead(self, dataset: Any, batch_size: int | None = None, *, most: int = 1, **loader: Any) -> ReadAhead:
        """Return this worker's batches of one pass, for a loop that has up to ``most`` of them at hand before it trains
        on the first: the loops of other libraries do. It calls ``trained()`` of the result after each batch.

        ``dataset``, ``batch_size``, ``loader``: as in ``batches``. The samples that a worker has at hand when it dies in
        the last pass are left undone, and counted.
        """
        return self._data.read_ahead(dataset, batch_size, most, loader)

    def total_steps(
        self,
        dataset: Any,
        batch_size: int | None = None,
        *,
        global_batch: int | None = None,
        epochs: int = 1,
        drop_last: bool | None = None,
        **loader: Any,
    ) -> int:
        """Return how many batches this worker will get of ``epochs`` passes, if all workers are equally fast: for the
        length of a learning-rate schedule. A faster worker gets more, and workers may come and go."""
        return self._data.total_steps(dataset, batch_size, global_batch, epochs, drop_last, loader)

    def next_batch(self, batches: Iterator[Any], accumulating: bool) -> Any:
        """Read a batch, between two steps; return ``NO_MORE`` at the end, or where the run is stopping. ``accumulating``:
        the gradients of the last one wait for those of this one."""
        keeper = self._keeper
        self._masters.take_changes()
        if self._session is not None and not accumulating:
            self._session.stand_still()
        moment = keeper.before_batch(accumulating) if keeper is not None else None
        batch = next(batches, NO_MORE)
        self._masters.refresh()
        if batch is NO_MORE or (self.stopping and self._member is None):
            return NO_MORE
        if self._member is not None:
            self._member.share()  # while this process waited for the batch, others' updates may have come
        if keeper is not None:
            keeper.at_batch(moment)
        if self._session is not None:
            self._session.exchange.at_batch()
        self.watch.charge("data")
        return batch

    def count_trained(self, share: Share) -> int:
        """Note that the oldest batch at hand was trained on; return how many samples it had."""
        trained = share.trained()
        self.samples += trained
        return trained

    @abstractmethod
    def step(self, *given: Any, **options: Any) -> Any:
        """Make a step, with the gradients of this worker's loss, and exchange."""

    def _step_optimizer(self, overflow: bool = False) -> None:
        """Make the optimizer's step, before which gradients are exchanged if the strategy asks for that; then exchange.
        ``overflow``: the gradients are not finite, and do not count."""
        self._hooks.begin_step(overflow)
        try:
            self.optimizer.step()
        except TypeError as error:
            if "closure" not in str(error):
                raise
            raise needs_closure(self.optimizer) from None
        finally:
            self._hooks.end_step()
        self.optimizer.zero_grad(set_to_none=True)
        self._exchange()

    def _clip(self, norm: float) -> None:
        if self._member is not None:
            self._member.clip(self._trained, norm)
            return
        import torch

        torch.nn.utils.clip_grad_norm_(self._trained, norm)

    def exchange(self, loss: torch.Tensor | float | None = None, *, samples: int = 0) -> None:
        """Send what changed and include what arrived, after your own ``optimizer.step()``. Never waits for anybody.

        ``loss`` is for the statistics (and is checked); so is ``samples``, where they do not come from ``batches``.
        """
        self.check_open("exchange")
        if loss is not None:
            self._loss.note(loss)
        self.samples += samples
        self._exchange(samples)

    def exchange_if_forgotten(self) -> None:
        """Make the exchange that the script does not ask for, after its own ``optimizer.step()``."""
        if self._hooks.forgotten and not self._closed:
            self._exchange(self._given_samples, asked=False)

    def _exchange(self, samples: int = 0, asked: bool = True) -> None:
        """Count a step, and exchange. ``samples``: given by the script; ``asked``: by the script, too."""
        self._given_samples = samples
        self._masters.take_changes()
        if self._session is not None and asked:
            self._loss.read()  # the step is queued on the device by now: this waits for its forward pass alone
        self._hooks.exchanging(asked)
        self.steps += 1
        if not self._data.used and self.stopping:
            raise Stopping  # the script's own loop knows nothing of the drain
        if self._session is None:
            self.watch.charge("compute")
            return
        self._metrics.send_due()
        self._before_change()
        self._session.after_step(*self.step_weight())
        self._masters.refresh()
        if self._member is not None:
            self._member.agree(0.0, self._session.exchange.idle)
            self._member.share()
        if not self._data.used:
            self._session.stand_still()
            self._masters.refresh()
            if self._keeper is not None:
                self._keeper.after_exchange()
        if self._evaluation is not None and not self.stopping:
            self._evaluation.after_step(self.model, self.steps, self._data.passes, self.is_main)

    def _before_change(self) -> None:
        """Complete a checkpoint's copy of the weights: they may change now."""
        if self._keeper is not None:
            self._keeper.before_change()

    def step_weight(self) -> tuple[int, float]:
        """Return the samples and the learning rate of the step that is being made, where the exchange asks for them."""
        exchange = self.exchange_now()
        if exchange is None or not exchange.weighs_steps:
            return 0, 0.0
        return self.step_samples(), self.step_rate()

    def step_samples(self) -> int:
        """Return the samples of the step that is being made: as dealt, as last given to ``exchange``, or one for all
        alike."""
        return self._data.handed_samples() or self._given_samples or 1

    def step_rate(self) -> float:
        """Return the first learning rate that is not 0, as it is scaled: methods divide by it."""
        rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        return self._hooks.rate_factor * next((rate for rate in rates if rate), 0.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False] | bool:
        if error is None or isinstance(error, Stopping):
            self.close()
            return error is not None
        if isinstance(error, SystemExit) and not error.code:
            self.close()
            return False
        if isinstance(error, KeyboardInterrupt):
            self.leave()
        else:
            self.fail(error)
        return False

    def close(self) -> None:
        """End the training: drain, agree on the model, and leave. The model then holds the run's final weights. (A worker
        that was told to leave hands over what it did, and keeps the model as it has it.)"""
        if self._closed:
            return
        if self._session is not None and self._session.leaving:
            self.leave()
            return
        try:
            self._guard.check_modules()
            if not self.stopping:
                self.exchange_if_forgotten()
            self._loss.read()
            self._data.end_rounds()
        except (Misuse, NonFiniteLoss) as error:
            self.fail(error)
            raise
        self._end_evaluation()
        if self.samples and not self.steps and not self.stopping:
            log.warning("no step was made: call worker.step(loss), or worker.exchange(loss) after a step of your own")
        self._metrics.flush()
        self._closed = True
        self._hooks.close()
        self._before_change()
        self.watch.charge("compute")
        if self._session is not None:
            try:
                self._session.finish(self._data.dealer.progress)
                if self._member is not None:
                    self._member.share()
            finally:
                self._masters.close()
                self.score = self._session.score
            return
        self._masters.close()
        self._validation.recalibrated(self.model)
        self.score = self._validation.score(self.model)
        self._validation.raise_failure()

    def _end_evaluation(self) -> None:
        if self._evaluation is not None:
            self._evaluation.finish()
            self._evaluation.close()

    def fail(self, error: BaseException) -> None:
        """End by an error: the others are told, and go on. Ctrl-C before the first step is none: the worker leaves, with
        nothing to hand over."""
        if self._closed:
            return
        self._closed = True
        self._hooks.close()
        self._masters.close()
        if self._session is None:
            return
        if self._member is not None:
            self._member.await_end(error)
        if isinstance(error, SupervisorLost | PeerLost):
            error.add_note(f"the model as this worker has it is in {self._session.save_here()}")
        if isinstance(error, KeyboardInterrupt):
            self._session.comm.say(Done(leaving=True))
        else:
            self._session.comm.say(Failed(f"{type(error).__name__}: {error}"[:4000], unfit=not self._session.merged))
        self._session.comm.close(linger_s=1.0)
        if self._evaluation is not None:
            self._evaluation.close()  # after the others were told: an evaluation may take its time

    def leave(self) -> None:
        """Go now; the others go on. Everything this worker did stays in the run."""
        if self._closed:
            return
        self._data.end_rounds()
        self._end_evaluation()
        self._metrics.flush()
        self._closed = True
        self._hooks.close()
        self._before_change()
        if self._session is not None:
            self._session.leave(self._data.dealer.progress)
        self._masters.close()

    def __del__(self) -> None:
        if not self._closed and self._session is not None:
            warnings.warn("a taut worker was dropped without close()", ResourceWarning, stacklevel=1)

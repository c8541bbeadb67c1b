"""A worker in a run of one or of many, whatever computes its gradients: its data, the exchange after a step, its end.

It moves one flat vector. ``taut.join`` makes that of a PyTorch model's parameters, ``taut.join_vector`` of an array of
the script's own. ``optimizer`` makes a step: PyTorch's, or a function of the script's (``vector/update_function.py``).
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from taut.core.messages import Done, EndRun, Failed, Message, Statistics
from taut.errors import Misuse, NonFiniteLoss, PeerLost, Stopping, SupervisorLost
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
from taut.worker.metric_log import MetricLog
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.growth import Growth
from taut.worker.model.master_weights import MasterWeights
from taut.worker.model.model_checks import HALVES, ModelGuard, check_model
from taut.worker.optimizer.local_step import LastLoss, needs_closure
from taut.worker.optimizer.loss_scaling import LossScaling
from taut.worker.optimizer.step_hooks import OptimizerSteps
from taut.worker.session import WorkerSession
from taut.worker.time_split import Stopwatch
from taut.worker.validation import Validation

if TYPE_CHECKING:
    import torch
    from torch import nn

    from taut.worker.checkpoints.checkpointer import Checkpointer
    from taut.worker.evaluation import Evaluation
    from taut.worker.exchange.base import Exchange


class SessionWorker(ABC):
    """What every worker of a run has; what makes a step is its subclass's (``TorchWorker``, ``VectorWorker``).

    ``rank`` is this worker's number, never used twice in a run; ``workers`` is how many there are at the moment;
    ``stopping`` turns true when the run is being drained; ``score`` is, after the end, what the validation function says
    of this worker's replica.
    """

    _closed = True  # until it is made
    _evaluation: Evaluation | None = None

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        session: WorkerSession | None,
        seed: int,
        validation: Validation | None = None,
        also: Mapping[str, Any] | None = None,
        params: FlatParams | None = None,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self._validation = validation or Validation()
        self.score: float | None = None
        self._session = session  # None: a run of one, without any ceremony
        self._member = session.member if session else None  # of an island; None: this worker is one process
        self._dealer = Dealer(SessionLeases(session) if session else OwnLeases(), session.seed if session else seed)
        self._own = OwnDealer(session, self._dealer.seed)
        self._open: list[Share] = []  # those that a loop of the script is reading
        self._pacers: dict[int, Pacer] = {}  # by the global batch: what was measured in one loop counts in the next
        self._rounds: Rounds | None = None  # of clients
        self._batches_used = False
        self._ended = False  # by the script, of a worker alone
        self._closed = False
        self._keeper: Checkpointer | None = None
        self._passes_refused = 0  # calls of batches() that found the run stopping
        self.steps = self.samples = 0
        self.scaling = LossScaling()
        self._loss = LastLoss(self)
        self._metrics = MetricLog(self._say)
        self._given_samples = 0
        self._trained = check_model(model, optimizer)
        self._own_params = params
        self._guard = ModelGuard(model, optimizer, self._trained)
        self._hooks = OptimizerSteps(self, session, self._guard)
        self._masters = _masters(session.params if session else params, session.seed if session else seed)
        self._masters.attach(optimizer)  # after the hooks, so that closures and gradients are there before a step
        self.watch = session.watch if session else Stopwatch()
        if session:
            session.statistics = self.statistics
            session.also = also or {}
            try:
                self._check_strategies(session)
                session.attach(optimizer)
                session.train()
            except BaseException as error:  # an optimizer that does not go with the strategy: the others must be told
                self.fail(error)
                raise
            self._follow(session)
            session.returned = self._came_back
        self._masters.refresh()
        self._meet_exchange()
        self._keeper = self._keep(session, also or {}) if session else None
        self._evaluation = self._evaluates(session) if session else None
        if self._member is not None:
            self._member.share()

    def _check_strategies(self, session: WorkerSession) -> None:  # noqa: B027
        """Raise ``Misuse`` where this worker cannot follow one of the run's strategies."""

    def _keep(self, session: WorkerSession, also: Mapping[str, Any]) -> Checkpointer | None:
        """Return the checkpointer, where the run has checkpoints or continues one."""
        settings = session.settings
        folder, resumed = settings.get("checkpoints"), settings.get("resume")
        if not folder and not resumed:
            return None
        from taut.worker.checkpoints.checkpointer import Checkpointer

        try:
            session.keeper = Checkpointer(self, session, Path(folder) if folder else None, also)
        except BaseException as error:
            self.fail(error)
            raise
        if resumed:
            self._dealer.complete = resumed.get("complete", 0)
        return session.keeper

    def _evaluates(self, session: WorkerSession) -> Evaluation | None:
        """Return the evaluations in the course of the run, where the run has some."""
        interval = session.settings.get("validate_every")
        if not interval:
            return None
        from taut.worker.best_model import place_of
        from taut.worker.evaluation import Evaluation

        best = place_of(session.settings.get("best_model"), session.run)
        try:
            return Evaluation(self._validation, interval, session.say, session.comm.clock, best)
        except BaseException as error:
            self.fail(error)
            raise

    @property
    def resumed(self) -> bool:
        """Return whether this run continues from a checkpoint, and this worker from where one left off: ``steps`` says
        where."""
        return self._keeper is not None and self._keeper.resumed is not None

    def progress(self) -> Mapping[int, int]:
        """Return how many samples are trained on, of each lease that is begun."""
        return self._dealer.progress

    def own_position(self) -> list[int]:
        """Return how many passes over its own data this worker has made, and the samples of the next one."""
        return self._own.position()

    def begin_own_at(self, complete: int, samples: int) -> None:
        """Begin its own data where a checkpoint left off."""
        self._own.begin_at(complete, samples)

    def _came_back(self) -> None:
        """Follow the session, which has another rank in the run."""
        assert self._session is not None
        self._follow(self._session)
        self._meet_exchange()

    def _follow(self, session: WorkerSession) -> None:
        session.phases.changed, session.phases.taken_over = self._meet_exchange, self._take_weights
        session.phases.grown = self._adopt

    def _meet_exchange(self) -> None:
        """Prepare for the exchange of a new phase, or the first one."""
        if self._session is not None:
            self._session.exchange.member = self._member
        self._hooks.renew()

    def _take_weights(self) -> None:
        self._hooks.renew()

    def _grow(self, growth: Growth) -> None:
        """Go on with a grown model: at once where this worker is alone, else together with the others."""
        if self._member is not None:
            raise Misuse("worker.grow in an island", "a run without islands", "see docs/growing.md")
        if self._open:
            remedy = "call it when the loop over worker.batches is over, on every worker"
            raise Misuse("worker.grow inside of a loop over worker.batches", "a call between two loops", remedy)
        if self._rounds is not None:
            raise Misuse(
                "worker.grow in a script with worker.rounds", "one of them", "let all rounds train the large model"
            )
        self._guard.check_modules()
        self.exchange_if_forgotten()
        self._loss.read()
        self._before_change()
        if self._session is not None:
            self._session.grow(growth)
            return
        halves = any(each.dtype in HALVES for each in growth.trained)
        growth.apply(self._masters.rounding if halves else None, self._own_params)
        self._adopt(growth)

    def _adopt(self, growth: Growth) -> None:
        """Take the grown model and its optimizer in the place of those before."""
        self._hooks.close()
        self._masters.close()
        self.model, self.optimizer, self._trained = growth.model, growth.optimizer, list(growth.trained)
        self._own_params = growth.params
        self._guard = ModelGuard(self.model, self.optimizer, self._trained)
        self._hooks = OptimizerSteps(self, self._session, self._guard)
        self._masters = _masters(growth.params, self._dealer.seed)
        self._masters.attach(self.optimizer)
        self._masters.refresh()
        if self._session is not None:
            self._session.adopt(growth)
        if self._keeper is not None:
            self._keeper.adopt(growth)

    @property
    def closed(self) -> bool:
        """Return whether this worker has left the run, however it did."""
        return self._closed

    @property
    def rank(self) -> int:
        return self._session.comm.rank if self._session else 0

    @property
    def workers(self) -> int:
        return self._session.comm.workers if self._session else 1

    @property
    def stopping(self) -> bool:
        """Return whether the run is being drained: finish what you are at."""
        return self._ended if self._session is None else self._session.stopping

    def end_run(self, reason: str = "") -> None:
        """End the run in order, for all workers: ``if worker.loss < 0.01: worker.end_run("good enough")``.

        The main worker's word counts (``is_main``), since every worker sees other losses; on another worker this does
        nothing. ``batches`` and ``rounds`` end soon after; a loop without them looks at ``stopping``. Where the process
        of the main worker dies before it is heard, the next main worker decides."""
        if self._member is not None:
            raise Misuse("worker.end_run in an island", "a run without --island", "break the loop in all processes alike")
        if self._session is None:
            self._ended = True
        elif self.is_main:
            self._session.say(EndRun(str(reason)[:4000]))

    @property
    def is_main(self) -> bool:
        """Return whether this worker has the lowest rank of those in the run: the one to print and to save.

        Where that worker dies or leaves, the next one takes over as soon as it hears of that. So for a moment there may
        be none; and two, while a worker that was given up has not noticed. Of an island it is process 0."""
        if self._member is not None and self._member.group.rank:
            return False
        roster = self._session.comm.status.roster if self._session else None
        return roster is None or self.rank <= min((member.rank for member in roster.members), default=self.rank)

    @property
    def loss(self) -> float | None:
        """Return the loss of the last step. Where it is on a GPU, this waits for it."""
        return self._loss.read()

    @loss.setter
    def loss(self, value: float | None) -> None:
        self._loss.value = value

    def print(self, *values: object, **options: Any) -> None:
        """Print, on the main worker only."""
        if self.is_main:
            print(*values, **options)

    @property
    def figures(self) -> dict[str, float]:
        """Return what the strategy counts at this worker: under ``sync:backup=1``, say, the gradients that were
        dropped."""
        return self._session.exchange.figures() if self._session else {}

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
        refuse_clients(self.exchange_now(), "worker.batches")
        stretches = order is not None
        if stretches:
            shuffle = check_order(order, global_batch, shuffle, self._member is not None)
        if split and self._member is not None:
            self._member.check_split()
        if own:
            check_own(dataset, global_batch, loader.get("sampler"))
        data, pacer = self._read(dataset, batch_size, global_batch, shuffle, drop_last, loader | {"own_data": own})
        dealer = self._own if own else self._dealer
        first, until = dealer.passes(1 if epochs is None else epochs)
        size, last = data.batch_size, epochs is not None
        asked = (data.length, size, first, until, last, data.order, data.drop_last, data.samples, stretches)
        plan = BatchPlan(*asked, pace=pacer.share, split=split)
        share = self._share_of(dealer, plan, data.streams)
        dealt = self._deal(share, data.read(share, first), pacer)
        place = share.place if stretches else None
        if data.streams:
            return Batches(dealt, unknown_length, place)
        return Batches(dealt, lambda: plan.batches(dealer.complete) if own else self._share(plan, dealer.complete), place)

    def rounds(self, parts: Parts, rounds: int) -> Rounds:
        """Return rounds of clients, which may outnumber the workers; each gives the clients that this worker trains in
        it: ``for round in worker.rounds(parts, 50): for client in round: for x, y in client.batches(...)``.

        ``parts``: an entry for each client, its data (``client.data``), or a function from the client's number to it.
        Between two rounds the model is the mean of all clients of the last one. Alone, this worker trains all clients.
        """
        weights = [each.data for each in self._trained] if self._session is None else [self._session.params.tensor]
        buffers = [each.detach() for each in self.model.buffers() if each.is_floating_point()]
        deal = lambda share, batches: self._deal(share, batches, Pacer(None, self.watch))  # noqa: E731
        trainer = Trainer(self, self._session, self._masters, weights, buffers, self._dealer.seed, deal)
        self._rounds = Rounds(trainer, parts, rounds)
        self._batches_used = True
        return self._rounds

    def read_ahead(self, dataset: Any, batch_size: int | None = None, *, most: int = 1, **loader: Any) -> ReadAhead:
        """Return this worker's batches of one pass, for a loop that has up to ``most`` of them at hand before it trains
        on the first: the loops of other libraries do. It calls ``trained()`` of the result after each batch.

        ``dataset``, ``batch_size``, ``loader``: as in ``batches``. The samples that a worker has at hand when it dies in
        the last pass are left undone, and counted.
        """
        if self._member is not None:
            raise Misuse("read_ahead in an island", "a run without islands", "call worker.batches, and no batch ahead")
        refuse_clients(self.exchange_now(), "worker.read_ahead")
        data = data_of(dataset, batch_size, **loader)
        check_indexed(data.streams, "read_ahead")
        first, until = self._dealer.passes(1)
        plan = BatchPlan(data.length, data.batch_size, first, until, False, data.order, data.drop_last, data.samples)
        share = Share(self._dealer, plan, most)
        self._batches_used = True
        return ReadAhead(self, self._open, share, data.read(share, first))

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
            return data_of(dataset, batch_size, shuffle, drop_last, **loader), Pacer(None, self.watch)
        exchange = self.exchange_now()
        if exchange is not None and exchange.scaling is not None:
            remedy = "with a global batch a step has as many samples whoever joins or leaves: drop --scale-lr"
            raise Misuse(f"global_batch={global_batch} with --scale-lr {exchange.scaling}", "one of them", remedy)
        part = check_global_batch(global_batch, batch_size, drop_last, self.workers)
        data = data_of(dataset, part, shuffle, drop_last, **loader)
        check_indexed(data.streams, f"global_batch={global_batch}")
        check_global_batch(global_batch, None, data.drop_last, self.workers)
        return data, self._pacers.setdefault(global_batch, Pacer(BatchShare(global_batch, self.workers), self.watch))

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
        data, pacer = self._read(dataset, batch_size, global_batch, None, drop_last, loader)
        check_indexed(data.streams, "total_steps")
        plan = BatchPlan(data.length, data.batch_size, 0, epochs, True, data.order, data.drop_last, pace=pacer.share)
        return self._share(plan)

    def _share(self, plan: BatchPlan, complete: int = 0) -> int:
        """Return this worker's part of the batches of all, rounded up. Of each global batch it has one."""
        batches = plan.batches(complete)
        return batches if plan.pace is not None else -(-batches // max(1, self.workers))

    def _deal(self, share: Share, batches: Iterator[Any], pacer: Pacer) -> Iterator[Any]:
        self._batches_used = True
        self.watch.charge("compute")
        if self.stopping and self._member is None:
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
            batch = self.next_batch(batches, accumulating)
            if batch is NO_MORE:
                return
            exchange = self.exchange_now()
            paced = pacer.share is not None or (exchange is not None and exchange.shares_speeds)
            if paced:
                pacer.begin(exchange, share.handed(), self.workers)
            steps = self.steps
            try:
                yield batch
            except GeneratorExit:  # the script leaves its loop: the batch counts if a step was made with it
                if self.steps > steps and not self._closed:
                    self.samples += share.trained()
                raise
            self.exchange_if_forgotten()
            self.watch.charge("compute")
            accumulating = self.steps == steps  # this batch's gradients wait for those of the next
            trained = self.count_trained(share)
            if paced:
                pacer.end(self.exchange_now(), trained, self.workers)

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

    def exchange_now(self) -> Exchange | None:
        """Return the exchange of the present phase, in a run of several."""
        return self._session.exchange if self._session is not None else None

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
        if not self._batches_used and self.stopping:
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
        if not self._batches_used:
            self._session.stand_still()
            self._masters.refresh()
            if self._keeper is not None:
                self._keeper.after_exchange()
        if self._evaluation is not None and not self.stopping:
            passes = max(self._dealer.reached, self._own.reached)
            self._evaluation.after_step(self.model, self.steps, passes, self.is_main)

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
        return sum(share.handed() for share in self._open) or self._given_samples or 1

    def step_rate(self) -> float:
        """Return the first learning rate that is not 0, as it is scaled: methods divide by it."""
        rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        return self._hooks.rate_factor * next((rate for rate in rates if rate), 0.0)

    def log(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> None:
        """Log numbers and images of your own under names: ``worker.log(accuracy=0.97)``. The run keeps them with this
        worker's rank and step, and shows them wherever it shows the loss. A script alone keeps nothing.

        An image is a matplotlib figure, a PIL image or an array of pixels (bytes, or floats from 0 to 1)."""
        if self._session is not None:
            self._metrics.log(self.steps, {**(values or {}), **named})

    def _say(self, message: Message, payloads: Sequence[bytes]) -> None:
        if self._session is not None and not self._closed:
            self._session.comm.say(message, payloads)

    def statistics(self) -> Statistics:
        """Return what this worker did so far."""
        split: dict[str, Any] = {f"{kind}_s": seconds for kind, seconds in self.watch.seconds.items()}
        mine = self._own.noted(Statistics(self.steps, self.samples, self._loss.value, wall_s=self.watch.wall_s, **split))
        mine = mine if self._rounds is None else self._rounds.noted(mine)
        return self._session.add_statistics(mine) if self._session else mine

    # --------------------------------------------------------------------------------------------- the end

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
            self._end_rounds()
        except (Misuse, NonFiniteLoss) as error:
            self.fail(error)
            raise
        self._end_evaluation()
        self._metrics.flush()
        self._closed = True
        self._hooks.close()
        self._before_change()
        self.watch.charge("compute")
        if self._session is not None:
            try:
                self._session.finish(self._dealer.progress)
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

    def _end_rounds(self) -> None:
        if self._rounds is not None:
            self._rounds.close()

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
        self._end_rounds()
        self._end_evaluation()
        self._metrics.flush()
        self._closed = True
        self._hooks.close()
        self._before_change()
        if self._session is not None:
            self._session.leave(self._dealer.progress)
        self._masters.close()

    def __del__(self) -> None:
        if not self._closed and self._session is not None:
            warnings.warn("a taut worker was dropped without close()", ResourceWarning, stacklevel=1)


def _masters(params: FlatParams | None, seed: int) -> MasterWeights:
    """Return the masters of a model's parameters of half precision; of none, where there is no flat vector."""
    import torch

    masters = params.masters if params is not None else MasterWeights(torch.empty(0), [])
    masters.seed = seed
    return masters

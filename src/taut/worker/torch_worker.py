"""The worker that ``taut.join`` returns: an ordinary PyTorch model and optimizer, in a run of one or of many."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from taut.core.messages import Done, Failed, Statistics
from taut.errors import Misuse, NonFiniteLoss, PeerLost, Stopping, SupervisorLost
from taut.worker.data.batch_share import BatchShare
from taut.worker.data.batches import Batches, BatchPlan, Dealer, OwnLeases, Share
from taut.worker.data.global_batch import GlobalShare, Pacer, check_global_batch
from taut.worker.data.island_share import FollowingShare, LeadingShare
from taut.worker.data.reading import Data, data_of
from taut.worker.exchange.distillation import Distillation, distillation_of
from taut.worker.model.local_step import LastLoss, check_gradient, needs_closure
from taut.worker.model.model_checks import ModelGuard, check_model
from taut.worker.model.optimizer_steps import OptimizerSteps
from taut.worker.rejoin import SessionLeases
from taut.worker.session import WorkerSession
from taut.worker.time_split import Stopwatch
from taut.worker.validation import Validation

if TYPE_CHECKING:
    import torch
    from torch import nn

    from taut.worker.checkpoints.checkpointer import Checkpointer
    from taut.worker.exchange.base import Exchange
    from taut.worker.island_member import IslandMember

_NO_MORE: Any = object()


class TorchWorker:
    """One participant of a run. Made by ``taut.join``; use it as a context manager.

    ``rank`` is this worker's number, never used twice in a run; ``workers`` is how many there are at the moment;
    ``stopping`` turns true when the run is being drained; ``score`` is, after the end, what the validation function says
    of this worker's replica.
    """

    _closed = True  # until it is made

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        session: WorkerSession | None,
        seed: int,
        validation: Validation | None = None,
        also: Mapping[str, Any] | None = None,
        member: IslandMember | None = None,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self._validation = validation or Validation()
        self.score: float | None = None
        self._session = session  # None: a run of one, without any ceremony
        self._member = member  # of an island; None: this worker is one process
        self._dealer = Dealer(SessionLeases(session) if session else OwnLeases(), session.seed if session else seed)
        self._pacers: dict[int, Pacer] = {}  # by the global batch: what was measured in one loop counts in the next
        self._batches_used = False
        self._closed = False
        self._keeper: Checkpointer | None = None
        self._passes_refused = 0  # calls of batches() that found the run stopping
        self.steps = self.samples = 0
        self._loss = LastLoss(self)
        self._given_samples = 0
        self._trained = check_model(model, optimizer)
        self._guard = ModelGuard(model, optimizer, self._trained)
        self._hooks = OptimizerSteps(self, session, self._guard)
        self._device = next(model.parameters()).device
        self.watch = session.watch if session else Stopwatch()
        if session:
            session.statistics = self.statistics
            session.also = also or {}
            try:
                session.attach(optimizer)
                session.train()
            except BaseException as error:  # an optimizer that does not go with the strategy: the others must be told
                self.fail(error)
                raise
            self._follow(session)
            session.returned = self._came_back
        self._distillation: Distillation | None = None
        self._meet_exchange()
        self._keeper = self._keep(session, also or {}) if session else None

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

    @property
    def resumed(self) -> bool:
        """Return whether this run continues from a checkpoint, and this worker from where one left off: ``steps`` says
        where."""
        return self._keeper is not None and self._keeper.resumed is not None

    def progress(self) -> Mapping[int, int]:
        """Return how many samples are trained on, of each lease that is begun."""
        return self._dealer.progress

    def _came_back(self) -> None:
        """Follow the session, which has another rank in the run."""
        assert self._session is not None
        self._follow(self._session)
        self._meet_exchange()

    def _follow(self, session: WorkerSession) -> None:
        session.phases.changed, session.phases.taken_over = self._meet_exchange, self._hooks.renew

    def _meet_exchange(self) -> None:
        """Prepare for the exchange of a new phase, or the first one."""
        session = self._session
        if self._distillation is not None:
            self._distillation.close()
        self._distillation = distillation_of(session.exchange, session.params, self.model) if session else None
        self._hooks.renew()

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
        return self._session is not None and self._session.stopping

    @property
    def is_main(self) -> bool:
        """Return whether this worker has the lowest rank of those in the run: the one to print and to save.

        Where that worker dies or leaves, the next one takes over as soon as it hears of that. So for a moment there may
        be none; and two, while a worker that was given up has not noticed."""
        roster = self._session.comm.status.roster if self._session else None
        return roster is None or self.rank <= min((member.rank for member in roster.members), default=self.rank)

    @property
    def device(self) -> torch.device:
        """Return the device that the model was on when it joined: for batches, ``x.to(worker.device)``."""
        return self._device

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

        The length, ``len(worker.batches(...))``, is this worker's expected share, as in ``total_steps``.
        """
        data, pacer = self._read(dataset, batch_size, global_batch, shuffle, drop_last, loader)
        first, until = self._dealer.passes(1 if epochs is None else epochs)
        size, order, last = data.batch_size, data.order, epochs is not None
        plan = BatchPlan(data.length, size, first, until, last, order, data.drop_last, data.samples, pacer.share)
        share = self._share_of(plan)
        dealt = self._deal(share, data.read(share, first), pacer)
        return Batches(dealt, lambda: self._share(plan, self._dealer.complete))

    def _share_of(self, plan: BatchPlan) -> Share:
        if self._member is not None and self._session is not None:
            kind = LeadingShare if self._member.group.rank == 0 else FollowingShare
            return kind(self._dealer, plan, self._member, self._session)
        return Share(self._dealer, plan) if plan.pace is None else GlobalShare(self._dealer, plan)

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
        self._dealer.open.append(share)
        try:
            yield from self._dealt(share, batches, pacer)
        finally:
            self._dealer.open.remove(share)
        if share.stopped:
            self._refuse_pass()

    def _refuse_pass(self) -> None:
        self._passes_refused += 1
        if self._passes_refused > 1:
            raise Stopping  # a loop that asks for pass after pass would never end

    def _dealt(self, share: Share, batches: Iterator[Any], pacer: Pacer) -> Iterator[Any]:
        keeper, accumulating = self._keeper, False
        while True:
            moment = keeper.before_batch(accumulating) if keeper is not None else None
            batch = next(batches, _NO_MORE)
            if batch is _NO_MORE or (self.stopping and self._member is None):
                return
            if keeper is not None:
                keeper.at_batch(moment)
            if self._session is not None:
                self._session.exchange.at_batch()
            self.watch.charge("data")
            pacer.begin(self.exchange_now(), share.handed(), self.workers)
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
            trained = share.trained()
            self.samples += trained
            pacer.end(self.exchange_now(), trained, self.workers)

    def exchange_now(self) -> Exchange | None:
        """Return the exchange of the present phase, in a run of several."""
        return self._session.exchange if self._session is not None else None

    def step(self, loss: torch.Tensor, *, clip_norm: float | None = None) -> float | torch.Tensor:
        """Make a step: backward, the optimizer's step, exchange. ``clip_norm`` clips the gradient's norm before the step.

        Return the loss: as a float or, where it is on a GPU, as a detached tensor (``float(...)`` and formatting wait for
        the device then, and so does ``worker.loss``).

        ``NonFiniteLoss`` for a loss that is NaN or infinite, before anything of the step is sent. On the CPU that is
        before anything is changed, too. A loss on a GPU is read when the whole step is queued on the device: this
        worker's weights are lost then; alone, it is read at the next step or the end. Where gradients are exchanged
        (``sync``) ``NonFiniteUpdate`` comes first. For closures (LBFGS), gradient accumulation or AMP scalers, write the
        loop yourself and call ``exchange`` after it.
        """
        check_gradient(loss)
        if self._member is not None and clip_norm is not None:
            raise Misuse("clip_norm in an island", "gradients as they are: no process has all of them")
        value = self._loss.note(loss)
        if self._session is not None and self._session.enter():
            return value  # the loss was of other weights than those that this worker has now
        if self._distillation is not None:
            agreement = self._distillation.term()
            loss = loss if agreement is None else loss + agreement
        if not self._backward(loss, clip_norm):
            self._exchange()  # gradients add up over several micro-batches
            return value
        if clip_norm is not None and not (self._session is not None and self._session.exchange.exchanges_gradients):
            import torch  # else the exchange clips: the gradient of all workers

            torch.nn.utils.clip_grad_norm_(self._trained, clip_norm)
        self._hooks.begin_step()
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
        return value

    def agreement(self) -> torch.Tensor:
        """Return how far the model's last outputs are from its peers' stale predictions, times the weight, under
        ``codistillation``: add it to the loss of a loop of your own (``step`` does so by itself). Zero otherwise."""
        import torch

        term = self._distillation.term() if self._distillation is not None else None
        return torch.zeros(()) if term is None else term

    def backward(self, loss: torch.Tensor) -> None:
        """Call ``loss.backward()``, in a loop of your own, before ``optimizer.step()``: where gradients are exchanged
        (``sync``), they are sent while backward is still at work. Leave them alone until the step."""
        if self._session is not None:
            self._session.exchange.arm(self.step_samples(), self.step_rate())
        loss.backward()  # type: ignore[no-untyped-call]

    def _backward(self, loss: torch.Tensor, clip_norm: float | None) -> bool:
        """Compute the gradients of ``loss``; return whether the optimizer's step is due."""
        weight, due = 1.0, True
        if self._session is not None:
            weight, due = self._session.exchange.prepare(self.step_samples(), self.step_rate(), clip_norm)
        if weight == 1.0:
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            loss.backward(loss.new_full(loss.shape, weight))  # type: ignore[no-untyped-call]
        return due

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
        if self._session is not None and asked:
            self._loss.read()  # the step is queued on the device by now: this waits for its forward pass alone
        self._hooks.exchanging(asked)
        self.steps += 1
        if self._session is None:
            self.watch.charge("compute")
            return
        if self.stopping and not self._batches_used:
            raise Stopping  # the script's own loop knows nothing of the drain
        self._before_change()
        self._session.after_step(self.step_samples(), self.step_rate())
        if self._member is not None:
            self._member.share()
        if self._keeper is not None and not self._batches_used:
            self._keeper.after_exchange()

    def _before_change(self) -> None:
        """Complete a checkpoint's copy of the weights: they may change now."""
        if self._keeper is not None:
            self._keeper.before_change()

    def step_samples(self) -> int:
        """Return the samples of the step that is being made: as dealt, as last given to ``exchange``, or one for all
        alike."""
        return self._dealer.handed() or self._given_samples or 1

    def step_rate(self) -> float:
        """Return the first learning rate that is not 0, as it is scaled: methods divide by it."""
        rates = [float(group["lr"]) for group in self.optimizer.param_groups]
        return self._hooks.rate_factor * next((rate for rate in rates if rate), 0.0)

    def statistics(self) -> Statistics:
        """Return what this worker did so far."""
        split: dict[str, Any] = {f"{kind}_s": seconds for kind, seconds in self.watch.seconds.items()}
        mine = Statistics(self.steps, self.samples, self._loss.value, wall_s=self.watch.wall_s, **split)
        return self._session.add_statistics(mine) if self._session else mine

    # --------------------------------------------------------------------------------------------- the end

    def __enter__(self) -> TorchWorker:
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
        except (Misuse, NonFiniteLoss) as error:
            self.fail(error)
            raise
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
                self.score = self._session.score
            return
        self._validation.recalibrated(self.model)
        self.score = self._validation.score(self.model)
        self._validation.raise_failure()

    def fail(self, error: BaseException) -> None:
        """End by an error: the others are told, and go on. Ctrl-C before the first step is none: the worker leaves, with
        nothing to hand over."""
        if self._closed:
            return
        self._closed = True
        self._hooks.close()
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

    def leave(self) -> None:
        """Go now; the others go on. Everything this worker did stays in the run."""
        if self._closed:
            return
        self._closed = True
        self._hooks.close()
        self._before_change()
        if self._session is not None:
            self._session.leave(self._dealer.progress)

    def __del__(self) -> None:
        if not self._closed and self._session is not None:
            warnings.warn("a taut worker was dropped without close()", ResourceWarning, stacklevel=1)

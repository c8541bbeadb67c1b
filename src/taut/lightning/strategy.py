"""A strategy of Lightning by which each process's Trainer is one worker of the run."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from taut.engines.devices import device as device_of_worker
from taut.errors import Misuse
from taut.specs import did_you_mean
from taut.worker.data.leased_loader import LeasedLoader
from taut.worker.join import join

try:
    from lightning.pytorch import Callback
    from lightning.pytorch.plugins.precision import MixedPrecision, Precision
    from lightning.pytorch.strategies import SingleDeviceStrategy, StrategyRegistry
    from lightning.pytorch.trainer.states import RunningStage, TrainerFn
    from lightning.pytorch.utilities import rank_zero_only
except ImportError:
    raise Misuse("taut.lightning without lightning", "its package", "pip install 'taut[lightning]'") from None

if TYPE_CHECKING:
    from taut.worker.torch_worker import TorchWorker

AHEAD = 1  # batches that a Trainer has at hand before it trains on the first: so it knows which is the last
NAME = "taut"  # Trainer(strategy="taut")
OPTIONS = [name for name in inspect.signature(join).parameters if name not in ("model", "optimizer")]


class TautStrategy(SingleDeviceStrategy):  # type: ignore[misc]
    """Train a LightningModule as a worker of the run that this process was started for, or of a run of one.

    ``Trainer(strategy=TautStrategy())``. The train_dataloader is dealt to all workers, each of which trains on one device
    at its own pace (or in lock-step, under ``sync``); after ``fit`` the module has the run's final weights. The other
    dataloaders are read whole by every worker.

    ``device``: by default the one that ``--devices`` gives to this worker. ``options``: those of ``taut.join``
    (``validate``, ``codec``, ``also``, ...). ``worker`` is the worker, from ``on_fit_start`` on.
    """

    strategy_name = NAME

    def __init__(
        self,
        *,
        device: Any = None,
        accelerator: Any = None,
        checkpoint_io: Any = None,
        precision_plugin: Any = None,
        **options: Any,
    ) -> None:
        for name in options:
            if name not in OPTIONS:
                raise Misuse(f"TautStrategy({name}=...)", "an option of taut.join", did_you_mean(name, OPTIONS))
        super().__init__(device or device_of_worker(), accelerator, checkpoint_io, precision_plugin)
        self.worker: TorchWorker | None = None
        self._options = options
        self._trainer: Any = None
        self._loader: LeasedLoader | None = None
        self._loss: Any = None
        self._stepped = False  # an optimizer has made a step of this batch
        self._callback = _Ends(self)

    @property
    def is_global_zero(self) -> bool:
        """Return whether this process is the one to write Lightning's checkpoints and logs."""
        return self.worker is None or self.worker.is_main

    def setup(self, trainer: Any) -> None:
        """Join the run, when the module is on its device and has its optimizers."""
        self._trainer = trainer
        super().setup(trainer)
        if trainer.state.fn != TrainerFn.FITTING:
            return
        schedulers = {f"scheduler {number}": each.scheduler for number, each in enumerate(self.lr_scheduler_configs)}
        options = self._options | {"also": schedulers | dict(self._options.get("also") or {})}
        optimizers = self.optimizers[0] if len(self.optimizers) == 1 else self.optimizers
        self.worker = worker = join(self.lightning_module, optimizers, **options)
        self.global_rank = worker.rank
        rank_zero_only.rank = 0 if worker.is_main else worker.rank  # for loggers and progress bars
        trainer.callbacks.insert(0, self._callback)  # before those that look at the weights
        self._meet_precision(self.precision_plugin, worker)

    def _meet_precision(self, plugin: Any, worker: TorchWorker) -> None:
        """Have gradients clipped by the worker. Raises ``Misuse`` for a scaler, whose steps others do not know of."""
        if worker.exchange_now() is None:
            return
        if isinstance(plugin, MixedPrecision) and plugin.scaler is not None:
            raise Misuse(f"precision={plugin.precision!r} in a run of several", "no scaler", "precision='bf16-mixed'")
        plugin.clip_grad_by_norm = self._clip_by_norm
        plugin.clip_grad_by_value = self._clip_by_value

    def _shares_gradients(self) -> bool:
        exchange = self.worker.exchange_now() if self.worker is not None else None
        return exchange is not None and exchange.exchanges_gradients

    def _clip_by_norm(self, optimizer: Any, norm: float) -> None:
        if self.worker is not None and self._shares_gradients():
            self.worker.clip(norm)  # the mean of all workers, when it is there
        else:
            Precision.clip_grad_by_norm(self.precision_plugin, optimizer, norm)

    def _clip_by_value(self, optimizer: Any, value: float) -> None:
        if self._shares_gradients():
            given = "gradient_clip_algorithm='value' where gradients are averaged over all workers"
            raise Misuse(given, "'norm', which is that of the mean", "or take another strategy, such as async")
        Precision.clip_grad_by_value(self.precision_plugin, optimizer, value)

    def process_dataloader(self, dataloader: Any) -> Any:
        """Deal the train_dataloader to all workers. Raises ``Misuse`` for one that cannot be dealt, and a second one."""
        trainer = self._trainer
        if trainer is None or trainer.state.stage != RunningStage.TRAINING:
            return dataloader
        if self._loader is not None and trainer.fit_loop._combined_loader is None:  # else it is loaded again
            remedy = "make one data set of them: torch.utils.data.ConcatDataset or StackDataset"
            raise Misuse("several train_dataloaders", "one", remedy)
        if self.worker is None:
            raise Misuse(
                "train_dataloader, asked for in configure_optimizers (trainer.estimated_stepping_batches)",
                "nothing before the training begins: batches are dealt to the workers then",
                "give the schedule a length of your own: epochs times the batches of a pass, divided by the workers",
            )
        self._loader = LeasedLoader(dataloader, AHEAD, self.worker)
        return self._loader

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Make the module's training step, and note its loss."""
        found = super().training_step(*args, **kwargs)
        self._loss = found.get("loss") if isinstance(found, Mapping) else found
        return found

    def optimizer_step(self, optimizer: Any, closure: Any, model: Any = None, **kwargs: Any) -> Any:
        """Make a step; the exchange comes at the end of the batch, after the steps of all optimizers."""
        self._stepped = True
        return super().optimizer_step(optimizer, closure, model, **kwargs)

    def end_batch(self) -> None:
        """Exchange, if the batch made a step, and count the batch."""
        worker = self.worker
        if worker is None or worker.closed:
            return
        if self._stepped:
            worker.exchange(self._loss)
        self._stepped, self._loss = False, None
        if self._loader is not None:
            self._loader.trained()
        if worker.stopping:
            self._trainer.should_stop = True

    def end_training(self) -> None:
        """End this worker's part of the run: the module then has the final weights."""
        if self._loader is not None:
            self._loader.leave()
            self._loader = None
        if self.worker is not None:
            self.worker.close()

    def on_exception(self, exception: BaseException) -> None:
        """Tell the others."""
        super().on_exception(exception)
        if self.worker is not None:
            self.worker.__exit__(type(exception), exception, exception.__traceback__)

    def teardown(self) -> None:
        """End the training, if that was not done, and release the device."""
        self.end_training()
        if self._trainer is not None and self._callback in self._trainer.callbacks:
            self._trainer.callbacks.remove(self._callback)
        super().teardown()


class _Ends(Callback):  # type: ignore[misc]
    """Tells the strategy when a batch and the training are over."""

    def __init__(self, strategy: TautStrategy) -> None:
        self._strategy = strategy

    def on_train_batch_end(self, *_: Any) -> None:
        self._strategy.end_batch()

    def on_train_end(self, *_: Any) -> None:
        self._strategy.end_training()


if NAME not in StrategyRegistry:
    StrategyRegistry.register(NAME, TautStrategy, description="a worker of a run of taut")

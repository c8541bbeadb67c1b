"""The Trainer of transformers, whose steps are exchanged and whose training data is dealt to all workers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from taut.errors import Misuse
from taut.worker.data.leased_loader import LeasedLoader, check_leased
from taut.worker.join import join

try:
    from transformers import Trainer, TrainerCallback, set_seed
except ImportError:
    raise Misuse("taut.hf without transformers", "its package", "pip install 'taut[hf]'") from None

if TYPE_CHECKING:
    from taut.worker.torch_worker import TorchWorker

    Base = Trainer
else:
    Base = object

ALIKE = ("collate_fn", "num_workers", "pin_memory", "prefetch_factor", "multiprocessing_context", "persistent_workers")


class SizedLoader(LeasedLoader):
    """The length is that of the whole data set: the Trainer's epochs and schedules are those of all workers together."""

    @property
    def dataset(self) -> Any:
        return self.loader.dataset

    def __len__(self) -> int:
        return len(self.loader)


class TautMixin(Base):  # type: ignore[misc, valid-type]
    """A Trainer that is a worker of the run that this process was started for, or of a run of one.

    The training data is dealt to all workers; each evaluates by itself. ``join``: options of ``taut.join``
    (``validate``, ``codec``, ...). ``worker`` is the worker, from ``on_train_begin`` on.
    """

    worker: TorchWorker | None = None

    def __init__(self, *args: Any, join: Mapping[str, Any] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._join_options = dict(join or {})
        self._leased: SizedLoader | None = None
        self._since_step = torch.zeros(())  # the loss of the batches since the last step
        self.callback_handler.callbacks.insert(0, _Steps(self))  # before those that look at the weights

    def get_train_dataloader(self) -> Any:
        """Return the training data as it is dealt. Raises ``Misuse`` for an order of samples that is not known to all."""
        check_leased(self.train_dataset)
        found = super().get_train_dataloader()
        sampler = found.batch_sampler.sampler
        if not isinstance(sampler, RandomSampler | SequentialSampler):
            remedy = "leave train_sampling_strategy and group_by_length out"
            raise Misuse(f"a {type(sampler).__name__} in the Trainer", "samples in a random or their own order", remedy)
        order = {"shuffle": isinstance(sampler, RandomSampler), "drop_last": self.args.dataloader_drop_last}
        alike = {name: getattr(found, name) for name in ALIKE}
        loader = DataLoader(found.dataset, self._train_batch_size, **order, **alike)
        self._leased = SizedLoader(loader, self.args.gradient_accumulation_steps - 1)
        return self._leased

    def train(self, *args: Any, **options: Any) -> Any:
        """Train as a worker; afterwards the model has the run's final weights."""
        if self.args.world_size > 1:
            remedy = "start it by taut run; torchrun and accelerate launch wrap the model for themselves"
            raise Misuse(f"{self.args.world_size} processes of torch.distributed", "one worker per process", remedy)
        try:
            return super().train(*args, **options)
        except BaseException as error:
            if self.worker is not None:
                self.worker.__exit__(type(error), error, error.__traceback__)
            raise

    def training_step(self, *args: Any, **options: Any) -> Any:
        """Make the Trainer's training step, and note its loss."""
        loss = super().training_step(*args, **options)
        self._since_step = self._since_step.to(loss.device) + loss
        return loss

    def is_world_process_zero(self) -> bool:
        """Return whether this is the main worker, which logs and saves."""
        return self.worker.is_main if self.worker is not None else bool(super().is_world_process_zero())

    def _save_checkpoint(self, *args: Any, **options: Any) -> None:
        if self.is_world_process_zero():
            super()._save_checkpoint(*args, **options)

    def save_model(self, *args: Any, **options: Any) -> None:
        """Save the model, on the main worker alone."""
        if self.is_world_process_zero():
            super().save_model(*args, **options)

    # ------------------------------------------------------------------------------- what the callback calls

    def begin_training(self) -> None:
        """Join the run, when the model is on its device and has its optimizer."""
        assert self._leased is not None
        also = {"scheduler": self.lr_scheduler, **self._join_options.get("also", {})}
        self.worker = worker = join(self.model, self.optimizer, **self._join_options | {"also": also})
        self._leased.worker = worker
        if worker.exchange_now() is not None:
            self._check_settings()
            self.accelerator.clip_grad_norm_ = self._clip
        self.state.is_world_process_zero = self.is_world_process_zero()
        if worker.rank:
            set_seed(self.args.seed + worker.rank)  # else all workers draw the same dropout masks

    def _check_settings(self) -> None:
        """Raise ``Misuse`` for what cannot be right where others move the weights, too."""
        args = self.args
        for given, refused, remedy in (
            ("load_best_model_at_end", args.load_best_model_at_end, "choose the final model by join={'validate': ...}"),
            ("auto_find_batch_size", args.auto_find_batch_size, "set per_device_train_batch_size"),
            ("fp16, which needs a scaler", self.accelerator.scaler is not None, "take bf16"),
            (f"{args.n_gpu} GPUs in one worker", args.n_gpu > 1, "give each worker its own: --devices auto"),
            ("DeepSpeed or FSDP", self.is_deepspeed_enabled or self.is_fsdp_enabled, "train without"),
        ):
            if refused:
                raise Misuse(f"a Trainer with {given}, in a run of several", "a Trainer without", remedy)

    def _clip(self, parameters: Any, max_norm: float, norm_type: float = 2) -> Any:
        """Clip the gradient's norm; where gradients are averaged, that of the mean. Return this worker's own norm."""
        gradients = [each.grad for each in parameters if each.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients, norm_type)
        if self.worker is not None and math.isfinite(max_norm):
            self.worker.clip(max_norm)
        return norm

    def end_batch(self, stepped: bool) -> None:
        """Count a batch, after which the optimizer has made a step, or the gradients wait for those of the next."""
        assert self.worker is not None and self._leased is not None
        if stepped:
            self.worker.exchange(self._since_step)
            self._since_step = torch.zeros(())
        self._leased.trained()
        if self.worker.stopping:
            self.control.should_training_stop = True
        if not stepped:
            return
        position, steps = self._position(), math.ceil(len(self._leased) / self.args.gradient_accumulation_steps)
        if isinstance(self.lr_scheduler, LambdaLR):
            self.lr_scheduler.last_epoch = position - 1
            self.lr_scheduler.step()
        if position >= self.state.max_steps and self.state.max_steps % steps:
            self.control.should_training_stop = True  # within a pass; else the passes end

    def _position(self) -> int:
        """Return how many steps all workers have made, if all are equally fast in a pass: where a schedule is."""
        assert self.worker is not None and self._leased is not None
        length, together = len(self._leased), int(self.args.gradient_accumulation_steps)
        batches = min(length, self._leased.batches * self.worker.workers)
        return math.ceil(((self._leased.passes - 1) * length + batches) / together)

    def end_pass(self) -> None:
        """Make the step that is due where this worker's share of a pass ends within an accumulation; go on after a pass
        in which others were faster, and had all batches."""
        worker, leased = self.worker, self._leased
        assert worker is not None and leased is not None
        if leased.batches % self.args.gradient_accumulation_steps and leased.batches != len(leased):
            if self.args.max_grad_norm > 0:
                worker.clip(self.args.max_grad_norm)
            self.accelerator.gradient_state._set_sync_gradients(True)
            self.optimizer.step()
            self.model.zero_grad()
            self.state.global_step += 1
            worker.exchange(self._since_step)
            self._since_step = torch.zeros(())
        if not leased.batches and not worker.stopping:
            self.control.should_training_stop = False

    def end_training(self) -> None:
        """End this worker's part of the run: the model then has the final weights."""
        assert self.worker is not None and self._leased is not None
        self._leased.leave()
        self.worker.close()


class _Steps(TrainerCallback):  # type: ignore[misc]
    """Tells the Trainer of its own steps."""

    def __init__(self, trainer: TautMixin) -> None:
        self._trainer = trainer

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self._trainer.begin_training()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._trainer.end_batch(stepped=True)

    def on_substep_end(self, *_: Any, **__: Any) -> None:
        self._trainer.end_batch(stepped=False)

    def on_epoch_end(self, *_: Any, **__: Any) -> None:
        self._trainer.end_pass()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self._trainer.end_training()


class TautTrainer(TautMixin, Trainer):  # type: ignore[misc]
    """``transformers.Trainer`` as a worker: all its arguments, and ``join``."""

"""The worker that ``taut.join`` returns: an ordinary PyTorch model and optimizer, in a run of one or of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from taut.errors import Misuse
from taut.worker.checkpoints.state_tree import check_also
from taut.worker.exchange.distillation import Distillation, distillation_of
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.given import module_of, optimizer_of
from taut.worker.model.growth import Carry, Growth, by_name
from taut.worker.model.model_checks import check_model
from taut.worker.optimizer.local_step import check_clip, check_gradient, warn_unreached
from taut.worker.session import WorkerSession
from taut.worker.session_worker import SessionWorker
from taut.worker.validation import Validation

if TYPE_CHECKING:
    import torch
    from torch import nn


class TorchWorker(SessionWorker):
    """One participant of a run. Made by ``taut.join``; use it as a context manager.

    ``rank`` is this worker's number, never used twice in a run; ``workers`` is how many there are at the moment;
    ``stopping`` turns true when the run is being drained; ``score`` is, after the end, what the validation function says
    of this worker's replica.
    """

    _distillation: Distillation | None = None

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
        super().__init__(model, optimizer, session, seed, validation, also, params)
        self._device = next(model.parameters()).device

    def _meet_exchange(self) -> None:
        session = self._session
        if self._distillation is not None:
            self._distillation.close()
        self._distillation = distillation_of(session.exchange, session.params, self.model) if session else None
        super()._meet_exchange()

    @property
    def device(self) -> torch.device:
        """Return the device that the model was on when it joined: for batches, ``x.to(worker.device)``."""
        return self._device

    def step(
        self, loss: torch.Tensor, *, clip_norm: float | None = None, scaler: torch.amp.GradScaler | None = None
    ) -> float | torch.Tensor:
        """Make a step: backward, the optimizer's step, exchange. ``clip_norm`` clips the gradient's norm before the step.

        Return the loss: as a float or, where it is on a GPU, as a detached tensor (``float(...)`` and formatting wait for
        the device then, and so does ``worker.loss``).

        ``NonFiniteLoss`` for a loss that is NaN or infinite, before anything of the step is sent. On the CPU that is
        before anything is changed, too. A loss on a GPU is read when the whole step is queued on the device: this
        worker's weights are lost then; alone, it is read at the next step or the end. Where gradients are exchanged
        (``sync``) ``NonFiniteUpdate`` comes first. For closures (LBFGS) or gradient accumulation, write the loop yourself
        and call ``exchange`` after it.

        ``scaler``: a ``torch.amp.GradScaler``, which scales the loss; its state is in checkpoints. Where a gradient
        overflows, this worker makes no step (under ``sync``: the step of the others' mean), and nothing of it is sent.
        A loss that is not finite is an overflow as long as the scale is above 1.
        """
        self.check_open("step")
        check_gradient(loss)
        check_clip(clip_norm)
        scales = self.scaling.take(scaler)
        value = self._loss.note(loss)
        if self._session is not None and self._session.enter():
            self._masters.refresh()
            return value  # the loss was of other weights than those that this worker has now
        if self._distillation is not None:
            agreement = self._distillation.term()
            loss = loss if agreement is None else loss + agreement
        if not self._backward(self.scaling.scaled(loss) if scales else loss, clip_norm, not scales):
            self._exchange()  # gradients add up over several micro-batches
            return value
        shared = self._session is not None and self._session.exchange.exchanges_gradients
        if not self.steps and not shared:
            warn_unreached(self._trained)
        overflow = scales and self._unscale()
        if overflow and not shared:
            self.optimizer.zero_grad(set_to_none=True)
            self._exchange()
            return value
        if clip_norm is not None and not shared:  # else the exchange clips: the gradient of all workers
            self._clip(clip_norm)
        self._step_optimizer(overflow)
        return value

    def grow(
        self,
        model: nn.Module | Sequence[nn.Module] | Mapping[str, nn.Module],
        optimizer: Any = None,
        carry: Carry = by_name,
        *,
        also: Mapping[str, Any] | None = None,
    ) -> None:
        """Go on with another model, usually a larger one, between two loops over ``batches``. Every worker calls this
        equally often; it waits for the others, and all begin the next phase with the same weights (docs/growing.md).

        ``model``, ``optimizer``, ``also``: as for ``taut.join``. ``carry``: a function that takes the old and the new
        model, copies weights from one to the other, and returns the names of the tensors that it filled; by default all
        that have the same name and shape. Modules that both models hold keep their weights in any case. Optimizer state
        goes along where the optimizer's type and the shape agree. What is new is the lowest rank's, on all workers.

        >>> import torch, taut
        >>> small = torch.nn.Sequential(torch.nn.Linear(2, 1))
        >>> large = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Linear(1, 1))
        >>> with taut.join(small, torch.optim.SGD(small.parameters(), lr=0.1)) as worker:
        ...     worker.grow(large, torch.optim.SGD(large.parameters(), lr=0.1))
        >>> worker.model is large, bool((large[0].weight == small[0].weight).all())
        (True, True)
        """
        if not callable(carry):
            raise Misuse(
                f"worker.grow(carry={carry!r})", "a function carry(old, new)", "taut.by_name, or one of your own"
            )
        model = module_of(model)
        if model is self.model:
            remedy = "change a copy: copy.deepcopy(model), and make an optimizer of its parameters"
            raise Misuse("worker.grow to the model that is trained already", "another module", remedy)
        trainer = optimizer_of(model, optimizer)
        check_also(also or {})
        trained = check_model(model, trainer)
        if trained[0].device != self._device:
            given = f"worker.grow to a model on {trained[0].device}"
            raise Misuse(given, f"one on {self._device}, as before", "call model.to(worker.device) first")
        self._grow(Growth(self.model, self.optimizer, model, trainer, trained, carry, also or {}))

    def clip(self, norm: float) -> None:
        """Clip the gradient's norm, in a loop of your own, between backward and ``optimizer.step()``. Where gradients are
        exchanged (``sync``), the mean of all workers is clipped in that step."""
        check_clip(norm)
        exchange = self.exchange_now()
        if exchange is not None and exchange.exchanges_gradients:
            exchange.clip(norm)
        else:
            self._clip(norm)

    def _unscale(self) -> bool:
        """Divide the gradients by the scaler's scale; return whether one is not finite, in any process of an island."""
        if self._member is None:
            return self.scaling.unscale(self.optimizer)
        return self.scaling.unscale_parts(self.optimizer, self._member.agree)

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

    def _backward(self, loss: torch.Tensor, clip_norm: float | None, early: bool) -> bool:
        """Compute the gradients of ``loss``; return whether the optimizer's step is due. ``early``: they may be sent
        meanwhile."""
        weight, due = 1.0, True
        if self._session is not None and self._session.exchange.exchanges_gradients:
            weight, due = self._session.exchange.prepare(self.step_samples(), self.step_rate(), clip_norm, early)
        if weight == 1.0:
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            loss.backward(loss.new_full(loss.shape, weight))  # type: ignore[no-untyped-call]
        return due

"""The worker that ``taut.join_vector`` returns: an array that the script changes in place, in a run of one or of many."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.dlpack import from_dlpack

from taut.errors import Misuse
from taut.strategies.gossip.codistillation import Codistillation, CodistillationState
from taut.worker.exchange.rounds import RoundExchange
from taut.worker.model.flat_params import FlatParams
from taut.worker.optimizer.local_step import check_clip
from taut.worker.session import WorkerSession
from taut.worker.session_worker import SessionWorker
from taut.worker.validation import Validation
from taut.worker.vector.update_function import UpdateFunction
from taut.worker.vector.vector_model import VectorModel, like


class VectorWorker(SessionWorker):
    """One participant of a run that trains an array. Made by ``taut.join_vector``; use it as a context manager.

    ``rank`` is this worker's number, never used twice in a run; ``workers`` is how many there are at the moment;
    ``stopping`` turns true when the run is being drained; ``score`` is, after the end, what the validation function says
    of this worker's replica. ``vector`` is the array; ``parts`` are views of it.
    """

    model: VectorModel
    optimizer: UpdateFunction
    WITHOUT = "join_vector without an update function"
    REMEDY = "give join_vector an update function, update(w, gradient, lr), and call worker.step(gradient)"

    def __init__(
        self,
        params: FlatParams,
        optimizer: UpdateFunction,
        session: WorkerSession | None,
        seed: int,
        validation: Validation | None = None,
        also: Mapping[str, Any] | None = None,
        updates: bool = True,
    ) -> None:
        self._updates = updates  # the script gave an update function
        self._teachers_seen = False
        super().__init__(params.model, optimizer, session, seed, validation, also, params)
        self.vector, self.parts = self.model.array, self.model.parts()
        self._first = self.model.tensor.clone() if session is not None else None  # until the first exchange

    @property
    def lr(self) -> float:
        """Return the learning rate that ``update`` is called with, as the script has set it."""
        return float(self.optimizer.param_groups[0]["lr"])

    @lr.setter
    def lr(self, value: float) -> None:
        self.optimizer.param_groups[0]["lr"] = check_lr(value)

    def _check_strategies(self, session: WorkerSession) -> None:
        phases = session.phases
        for number in range(len(phases.schedule.phases)) if not self._updates else ():
            choice = phases.choice_of(number)
            if not choice.is_method:
                continue
            method = choice.method()
            if method.vector == "gradients" or method.shapes_gradient:
                given = f"{self.WITHOUT} under {choice.name}, which changes gradients"
                raise Misuse(given, "gradients from the script, and how a step is made of one", self.REMEDY)

    def step(self, gradient: Any, loss: Any = None, *, samples: int = 0, clip_norm: float | None = None) -> None:
        """Make a step: ``update(w, gradient, lr)``, then exchange. Under ``sync``, ``update`` gets the mean gradient of
        all workers, weighted by their samples.

        ``gradient``: as many elements as the array has, of any type; ``loss``: of this worker's batch, for the statistics
        (``NonFiniteLoss`` if it is NaN or infinite, before anything is changed); ``samples``: of the batch, where they do
        not come from ``batches``; ``clip_norm`` clips the gradient's norm before the step.
        """
        if not self._updates:
            raise Misuse(f"worker.step(gradient) after {self.WITHOUT}", "to know what a step is", self.REMEDY)
        self.check_open("step")
        check_clip(clip_norm)
        given = self._gradient(gradient)
        if loss is not None:
            self._loss.note(loss)
        if self._session is not None and self._session.enter():
            return  # the gradient was of other weights than those that this worker has now
        self._given_samples, weight, due = samples, 1.0, True
        self.samples += samples
        exchange = self.exchange_now()
        if exchange is not None:
            weight, due = exchange.prepare(self.step_samples(), self.step_rate(), clip_norm, early=False)
        self._first = None
        self._check_teachers()
        self.optimizer.give(given, weight)
        if not due:
            self._exchange(samples)  # gradients add up over several micro-batches
            return
        if clip_norm is not None and (exchange is None or not exchange.exchanges_gradients):
            self._clip(clip_norm)
        self._step_optimizer()

    def exchange(self, loss: Any = None, *, samples: int = 0) -> None:
        """Send what changed in the array, and include what arrived, after a change by the script, in place. For all
        strategies but those that change gradients (``sync``, ``admm``): they need ``step``.

        ``loss`` is for the statistics (and is checked); so is ``samples``, where they do not come from ``batches``.
        """
        if self._session is not None and self._session.exchange.exchanges_gradients:
            raise Misuse("worker.exchange() under sync, which exchanges gradients", "worker.step(gradient)", self.REMEDY)
        if self._first is not None and torch.equal(self._first, self.model.tensor):
            warnings.warn(
                "the array has not changed since join_vector: a change must be in place, as w -= lr * gradient or "
                "w[:] = new; after w = w - lr * gradient the worker still has the old array",
                stacklevel=2,
            )
        self._first = None
        self._check_teachers()
        super().exchange(loss, samples=samples)

    def teachers(self) -> Sequence[Any]:
        """Return the arrays of the peers, as they were some steps ago, under ``codistillation``: compute their
        predictions for your batch, and add to your loss how far yours are from them. None otherwise."""
        self._teachers_seen = True
        found = self._teachers()
        return [like(self.vector, torch.tensor(each).to(self.model.tensor.device).view(self._shape)) for each in found]

    def _teachers(self) -> Sequence[Any]:
        exchange = self.exchange_now()
        if not isinstance(exchange, RoundExchange) or not isinstance(exchange.method, Codistillation):
            return ()
        state = exchange.method_state
        if not isinstance(state, CodistillationState) or not exchange.method.active(state):
            return ()
        return [teacher.weights for _, teacher in sorted(state.teachers.items())]

    def _check_teachers(self) -> None:
        if not self._teachers_seen and self._teachers():
            remedy = "add to the loss how far your predictions are from those of worker.teachers(); or another strategy"
            raise Misuse("codistillation with an array, without its teachers", "worker.teachers() in each step", remedy)

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(self.vector.shape)

    def _gradient(self, gradient: Any) -> torch.Tensor:
        """Return the gradient as a float32 tensor where the array is."""
        if isinstance(gradient, torch.Tensor):
            given = gradient.detach()
        elif hasattr(gradient, "__dlpack__") and not hasattr(gradient, "__array_interface__"):
            given = from_dlpack(gradient)
        else:
            try:
                given = torch.from_numpy(np.asarray(gradient, np.float32))
            except (TypeError, ValueError):
                raise Misuse(f"step({type(gradient).__name__})", "the gradient, as an array") from None
        if given.numel() != self.model.tensor.numel():
            shape = "x".join(map(str, given.shape)) or "one element"
            raise Misuse(f"a gradient of {shape}", f"one of shape {self._shape}, as the array that was joined")
        return given.to(self.model.tensor.device, torch.float32)


def check_lr(lr: Any) -> float:
    """Return a learning rate as a number. Raises ``Misuse`` if it is none."""
    try:
        rate = float(lr)
    except (TypeError, ValueError):
        rate = -1.0
    if not 0.0 <= rate < float("inf"):
        raise Misuse(f"lr={lr!r}", "a number of at least 0")
    return rate

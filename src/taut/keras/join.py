"""``taut.keras.join``: the same as ``taut.join``, for a compiled model of Keras and the optimizer in it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from taut.errors import Misuse
from taut.keras.dealt import count_batch
from taut.worker import join as joining

if TYPE_CHECKING:
    from taut.worker.torch_worker import TorchWorker


def join(model: Any, *, also: Mapping[str, Any] | None = None, **options: Any) -> TorchWorker:
    """Join the run that this process was started for with a model of Keras, or be a run of one.

    ``model``: built and compiled, on Keras's torch backend. From then on every step of ``model.fit`` is exchanged; the
    data comes from ``Dealt(worker, data, batch_size)``. The optimizer's variables are in checkpoints. ``also``,
    ``options``: as in ``taut.join``.
    """
    keras = _the_keras()
    _check_model(keras, model)
    optimizer = model.optimizer
    if not optimizer.built:
        optimizer.build(model.trainable_variables)
    apply, scale_loss, losses = optimizer.apply, optimizer.scale_loss, list[Any]()
    variables = list(model.trainable_variables)

    def update() -> None:
        apply([variable.value.grad for variable in variables], variables)

    worker = joining.join(model, update, also={"optimizer": OptimizerState(optimizer), **(also or {})}, **options)

    def noted(loss: Any) -> Any:
        losses[:] = [loss.detach()]
        return scale_loss(loss)

    def step(gradients: Any, trained: Any = None) -> Any:
        if worker.closed:
            return apply(gradients, trained)
        worker.optimizer.step()
        worker.exchange(losses.pop() if losses else None)
        count_batch(worker)
        return optimizer.iterations

    optimizer.apply, optimizer.scale_loss = step, noted
    # Keras expects as many batches in each pass; a worker's share is as large as it is fast.
    warnings.filterwarnings("ignore", message="Your input ran out of data")
    return worker


def _the_keras() -> Any:
    """Return the package, on its torch backend."""
    try:
        import keras
    except ImportError:
        keras = None
    if keras is None or keras.__file__ is None:  # without a file: a folder of that name somewhere on the path
        raise Misuse("taut.keras without keras", "its package", "pip install 'taut[keras]'")
    backend = keras.backend.backend()
    if backend != "torch":
        remedy = "set KERAS_BACKEND=torch before Keras is imported; for a loop of your own in JAX there is taut.jax.join"
        raise Misuse(f"taut.keras on the backend {backend}", "torch", remedy)
    return keras


def _check_model(keras: Any, model: Any) -> None:
    if not isinstance(model, keras.Model):
        raise Misuse(f"taut.keras.join({type(model).__name__})", "a keras.Model")
    if not model.built or not model.compiled:
        what = "built" if not model.built else "compiled"
        remedy = "give it a keras.Input, or call it once" if not model.built else "call model.compile(optimizer, loss)"
        raise Misuse(f"a model that is not {what}", "one that is", remedy)
    if isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer):
        raise Misuse("a LossScaleOptimizer", "an optimizer without a scaler", "take the policy mixed_bfloat16")
    if model.jit_compile is True:
        raise Misuse("a model with jit_compile=True", "steps that Keras makes in Python", "leave it out")


class OptimizerState:
    """The optimizer's variables, for checkpoints and newcomers."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {str(number): each.value.detach() for number, each in enumerate(self._optimizer.variables)}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Load what ``state_dict`` gave. Raises ``ValueError`` for that of another optimizer."""
        if len(state) != len(self._optimizer.variables):
            raise ValueError(f"{len(state)} variables")
        for number, each in enumerate(self._optimizer.variables):
            each.assign(state[str(number)])

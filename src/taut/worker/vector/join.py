"""``taut.join_vector``: the same as ``taut.join``, for an array and whatever framework computes its changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch

from taut.codecs import parse, spec
from taut.errors import Misuse
from taut.worker.checkpoints.state_tree import check_also
from taut.worker.joining.connection import Connector
from taut.worker.joining.enter_run import enter_run
from taut.worker.joining.island_member import island_member
from taut.worker.joining.launched import AUTO
from taut.worker.model.flat_params import FlatParams
from taut.worker.model.model_checks import check_model
from taut.worker.session import WorkerSession
from taut.worker.validation import Validation
from taut.worker.vector.update_function import UpdateFunction, move_nothing
from taut.worker.vector.vector_model import Parts, VectorModel, like
from taut.worker.vector.vector_worker import VectorWorker, check_lr

if TYPE_CHECKING:
    from taut.codecs import Codec, Compressor

Update = Callable[[Any, Any, float], object]
V = TypeVar("V", bound=VectorWorker)


def join_vector(
    array: Any,
    update: Update | None = None,
    *,
    lr: float = 1.0,
    state: Mapping[str, Any] | None = None,
    parts: Parts | None = None,
    validate: Callable[[Any], Any] | None = None,
    better: Literal["higher", "lower"] = "higher",
    codec: str | Mapping[str, Any] | Codec | Compressor | None = None,
    seed: int = 0,
    also: Mapping[str, Any] | None = None,
    launcher: str | None = AUTO,
) -> VectorWorker:
    """Join the run that this process was started for with an array of weights, or be a run of one.

    ``array``: float32, contiguous, writable: NumPy's, or any with the array interface or DLPack. It is trained in place:
    the script changes it and calls ``worker.exchange()``, after which it holds the others' updates, too.

    ``update``: a function ``update(array, gradient, lr)`` that changes the array in place. With one the script calls
    ``worker.step(gradient)``, and every strategy can be chosen: ``sync`` gives ``update`` the mean gradient of all
    workers. ``lr``: the rate that it gets, in ``worker.lr`` from then on; ``state``: the arrays that it keeps from step
    to step (a momentum, say), by name: they are in checkpoints, and are given to workers that join in mid-run.

    ``parts``: names and shapes of what the array consists of, in order, for an array of one dimension. The saved model
    has them under their names, and low-rank codecs see matrices. ``worker.parts`` are views.

    ``validate``: a function that takes the array and gives its score on held-out data. ``better``, ``codec``, ``seed``,
    ``also``, ``launcher``: as in ``taut.join``.

    >>> import numpy as np, taut
    >>> w = np.zeros(2, np.float32)
    >>> x = np.array([[0.0, 1.0], [1.0, 0.0]], np.float32); y = np.array([1.0, 2.0], np.float32)
    >>> with taut.join_vector(w) as worker:
    ...     for inputs, targets in worker.batches((x, y), batch_size=1, epochs=200):
    ...         w -= 0.1 * (inputs @ w - targets) @ inputs
    ...         worker.exchange()
    >>> worker.samples, w.round(3).tolist()
    (400, [2.0, 1.0])

    With an update function:

    >>> def sgd(w, gradient, lr):
    ...     w -= lr * gradient
    >>> w = np.zeros(2, np.float32)
    >>> with taut.join_vector(w, sgd, lr=0.1) as worker:
    ...     for inputs, targets in worker.batches((x, y), batch_size=1, epochs=200):
    ...         worker.step((inputs @ w - targets) @ inputs)
    >>> w.round(3).tolist()
    [2.0, 1.0]
    """
    if update is not None and not callable(update):
        raise Misuse(f"join_vector(update={update!r})", "a function update(array, gradient, lr)")
    if state and update is None:
        raise Misuse("join_vector(state=...) without update", "the arrays that an update function keeps")
    model, rate = VectorModel(array, parts), check_lr(lr)
    apply = move_nothing if update is None else _applied(update, model)
    arrays = {name: _state_tensor(name, each) for name, each in (state or {}).items()}
    optimizer = UpdateFunction(list(model.parameters()), apply, rate, arrays)
    scored = None if validate is None or not callable(validate) else lambda model: validate(model.array)
    validation = Validation(scored or validate, better)
    updates = update is not None
    return enter_with(model, optimizer, VectorWorker, validation, codec, seed, also, launcher, updates=updates)


def enter_with(
    model: VectorModel,
    optimizer: UpdateFunction,
    kind: Callable[..., V],
    validation: Validation,
    codec: str | Mapping[str, Any] | Codec | Compressor | None,
    seed: int,
    also: Mapping[str, Any] | None,
    launcher: str | None,
    updates: bool,
) -> V:
    """Return the worker of class ``kind`` that trains ``model`` in the run that this process was started for, or alone.
    ``updates``: ``optimizer`` makes steps of gradients; else the script changes the array by itself."""
    written = None if codec is None else spec(parse(codec))  # misuse is told before anything starts
    check_also(also or {})
    trained = check_model(model, optimizer)

    def made(link: Connector | None) -> V:
        member = island_member(model, trained) if link is not None else None
        params = FlatParams(model, trained, room=model.tensor)
        session = None if link is None else WorkerSession(link, params, written, validation, member)
        return kind(params, optimizer, session, seed, validation, also, updates=updates)

    return enter_run(made, launcher)


def _applied(update: Update, model: VectorModel) -> Callable[[torch.Tensor, float], object]:
    """Return the update as it is called with a flat gradient."""
    shape = tuple(model.array.shape)

    def apply(gradient: torch.Tensor, lr: float) -> None:
        made = update(model.array, like(model.array, gradient.view(shape)), lr)
        if made is not None and made is not model.array:
            given = f"an update function that returns a {type(made).__name__}"
            raise Misuse(given, "one that changes its array in place", "w -= lr * gradient, or w[:] = new")

    return apply


def _state_tensor(name: str, array: Any) -> torch.Tensor:
    """Return a tensor in the memory of an array that the update function keeps."""
    if isinstance(array, torch.Tensor):
        return array.detach()
    if not isinstance(array, np.ndarray) or not array.flags.writeable or not array.flags.c_contiguous:
        raise Misuse(f"state {name!r}", "an array that is changed in place: writable and contiguous")
    return torch.from_numpy(array)

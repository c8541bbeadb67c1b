"""``taut.jax.join``: the same as ``taut.join``, for a pytree of JAX and an optimizer of optax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from taut.errors import Misuse
from taut.jax.jax_worker import JaxWorker
from taut.jax.optax_steps import OptaxSteps
from taut.jax.packages import package
from taut.jax.pytree import FlatTree
from taut.worker.joining.launched import AUTO
from taut.worker.validation import Validation
from taut.worker.vector.join import enter_with
from taut.worker.vector.update_function import UpdateFunction, move_nothing
from taut.worker.vector.vector_model import VectorModel
from taut.worker.vector.vector_worker import check_lr

if TYPE_CHECKING:
    from taut.codecs import Codec, Compressor


def join(
    params: Any,
    optimizer: Any = None,
    *,
    lr: float = 1.0,
    validate: Callable[[Any], Any] | None = None,
    better: Literal["higher", "lower"] = "higher",
    codec: str | Mapping[str, Any] | Codec | Compressor | None = None,
    seed: int = 0,
    also: Mapping[str, Any] | None = None,
    launcher: str | None = AUTO,
) -> JaxWorker:
    """Join the run that this process was started for with a pytree of parameters, or be a run of one.

    ``params``: the pytree, whose leaves are arrays of float32 on one device. It is copied: ``worker.params`` is the
    trained one.

    ``optimizer``: an optimizer of optax. With one the script calls ``worker.step(gradients, loss)``, every strategy can
    be chosen, and its state is in checkpoints and goes to workers that join ``sync`` in mid-run. None: the script makes
    its own steps, and calls ``params = worker.exchange(params, loss)``.

    ``lr``: a factor of the optimizer's updates, in ``worker.lr`` from then on. Strategies that divide by the learning
    rate need it to be the whole rate: ``taut.jax.join(params, optax.sgd(1.0, momentum=0.9), lr=0.1)``.

    ``validate``: a function that takes the pytree and gives its score on held-out data. ``better``, ``codec``, ``seed``,
    ``also``, ``launcher``: as in ``taut.join``.
    """
    tree = FlatTree(params)
    model, rate = VectorModel(tree.vector, tree.parts), check_lr(lr)
    parts = list(model.parameters())
    optax = package("optax") if optimizer is not None else None
    if optax is None:
        steps = UpdateFunction(parts, move_nothing, rate, {})
    elif isinstance(optimizer, optax.GradientTransformation):
        steps = OptaxSteps(parts, tree, optimizer, rate)
    elif isinstance(optimizer, optax.MultiSteps):
        steps = OptaxSteps(parts, tree, optimizer.gradient_transformation(), rate)
    else:
        given = f"taut.jax.join(params, {type(optimizer).__name__})"
        raise Misuse(
            given, "an optimizer of optax, or none", "optax.adam(1e-3), say; flax.nnx.Optimizer holds one as .tx"
        )
    scored = None if validate is None or not callable(validate) else lambda _: validate(tree.tree_of(tree.vector))
    validation = Validation(scored or validate, better)
    kind = partial(JaxWorker, tree)
    return enter_with(model, steps, kind, validation, codec, seed, also, launcher, updates=optimizer is not None)

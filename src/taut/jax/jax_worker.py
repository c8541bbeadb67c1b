"""The worker that ``taut.jax.join`` returns: a pytree of JAX, in a run of one or of many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from taut.errors import Misuse
from taut.jax.pytree import FlatTree
from taut.worker.vector.vector_worker import VectorWorker


class JaxWorker(VectorWorker):
    """One participant of a run that trains a pytree. Made by ``taut.jax.join``; use it as a context manager.

    ``params`` is the pytree as it is now; ``rank``, ``workers``, ``stopping``, ``batches``, ``log`` and all else are as
    on the worker of ``taut.join``.
    """

    WITHOUT = "taut.jax.join without an optimizer"
    REMEDY = "give taut.jax.join(params, optimizer) one of optax's, and call worker.step(gradients, loss)"

    def __init__(self, tree: FlatTree, *given: Any, **options: Any) -> None:
        self._tree = tree
        super().__init__(*given, **options)

    @property
    def params(self) -> Any:
        """Return the parameters as they are now, with the others' updates. Each call makes new arrays, which nobody
        changes: ask once per step."""
        return self._tree.tree_of(self._tree.vector)

    def step(self, gradient: Any, loss: Any = None, *, samples: int = 0, clip_norm: float | None = None) -> None:
        """Make a step of the optimizer with ``gradient``, as ``jax.grad`` returns it, then exchange; ``params`` are the
        new ones then. Under ``sync`` the optimizer gets the mean gradient of all workers, weighted by their samples.

        ``loss``: of this worker's batch, for the statistics (``NonFiniteLoss`` if it is NaN or infinite, before anything
        is changed); ``samples``: of the batch, where they do not come from ``batches``; ``clip_norm`` clips the
        gradient's norm before the step.
        """
        given = self._tree.vector_of(gradient, "gradients") if self._updates else gradient
        super().step(given, loss, samples=samples, clip_norm=clip_norm)

    def exchange(  # type: ignore[override]
        self, params: Any = None, loss: Any = None, *, samples: int = 0
    ) -> Any:
        """Send what changed in ``params``, which a step of the script's own has made, and return the parameters with what
        arrived: ``params = worker.exchange(params, loss)``. For all strategies but those that change gradients
        (``sync``, ``admm``): they need ``step``."""
        if params is None:
            raise Misuse(
                "worker.exchange() without parameters", "those that your step has made", "exchange(params, loss)"
            )
        self._tree.vector[:] = self._tree.vector_of(params, "parameters")
        self._first = None  # whether they have changed is theirs to know
        super().exchange(loss, samples=samples)
        return self.params

    def teachers(self) -> Sequence[Any]:
        """Return the pytrees of the peers, as they were some steps ago, under ``codistillation``: add to your loss how
        far your predictions are from theirs. None otherwise."""
        return [self._tree.tree_of(each) for each in super().teachers()]

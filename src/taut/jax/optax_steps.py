"""The steps of an optax optimizer, compiled by JAX, as an optimizer that goes the way of all others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from taut.errors import Misuse
from taut.jax.packages import package
from taut.jax.pytree import FlatTree, leaf_name
from taut.worker.vector.update_function import UpdateFunction, move_nothing


class OptaxSteps(UpdateFunction):
    """``optimizer`` moves the vector of ``tree``, and ``lr`` is a factor of its updates.

    Its state stays on JAX's device. Arrays on the host show it to whoever asks for it (a checkpoint, a newcomer), and the
    next step begins with what they hold then.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], tree: FlatTree, optimizer: Any, lr: float) -> None:
        self._jax, self._tree = package("jax"), tree
        tree_util = self._jax.tree_util
        found, form = tree_util.tree_flatten_with_path(optimizer.init(tree.tree_of(tree.vector)))
        self._leaves = [leaf for _, leaf in found]
        self._shown = {f"optax.{leaf_name(self._jax, path)}": _on_host(leaf) for path, leaf in found}
        self._behind = False  # what is shown is of before the last step
        self._asked = False  # for the state: what is shown may have been changed since

        def move(vector: Any, gradient: Any, leaves: Any, lr: Any) -> Any:
            state = tree_util.tree_unflatten(form, leaves)
            updates, state = optimizer.update(tree.split(gradient), state, tree.split(vector))
            return vector + lr * tree.flatten(updates), tree_util.tree_leaves(state)

        _check_call(self._jax, move, tree.vector, self._leaves, optimizer)
        self._move = self._jax.jit(move, donate_argnums=2)
        arrays = {name: torch.from_numpy(array) for name, array in self._shown.items()}
        super().__init__(parameters, move_nothing, lr, arrays)

    @property
    def state(self) -> defaultdict[torch.Tensor, Any]:
        """Return the state as tensors by parameter and name. It may be changed, as it may be of any optimizer."""
        if self._behind:
            for shown, leaf in zip(self._shown.values(), self._leaves, strict=True):
                shown[...] = np.asarray(leaf)
            self._behind = False
            self._show_state()
        self._asked = True
        return self._by_parameter

    @state.setter
    def state(self, state: defaultdict[torch.Tensor, Any]) -> None:
        self._by_parameter = state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over a state that is being loaded."""
        self._behind = False
        self.state = state.pop("state")
        super().__setstate__(state)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move the vector by the gradient, if there is one."""
        if all(part.grad is None for part in self._parts):
            return
        if self._asked:
            self._take_state()
            given = zip(self._shown.values(), self._leaves, strict=True)
            self._leaves = [self._jax.device_put(shown.astype(leaf.dtype), self._tree.device) for shown, leaf in given]
        vector, rate = self._tree.vector, self.param_groups[0]["lr"]
        moved, self._leaves = self._move(vector, self._whole_gradient().numpy(), self._leaves, rate)
        vector[:] = np.asarray(moved)
        self._steps += 1
        self._behind, self._asked = True, False


def _on_host(leaf: Any) -> Any:
    """Return a copy of a leaf of the state, of a type that NumPy and torch both have."""
    array = np.array(leaf)
    return array if array.dtype.kind in "biuf" else array.astype(np.float32)  # bfloat16 and the like


def _check_call(jax: Any, move: Callable[..., Any], vector: Any, leaves: Any, optimizer: Any) -> None:
    """Raise ``Misuse`` for an optimizer that cannot make a step of parameters, gradients and its state alone."""
    try:
        jax.eval_shape(move, vector, vector, leaves, 1.0)
    except TypeError as error:
        raise Misuse(
            f"taut.jax.join(params, {type(optimizer).__name__}) ({error})",
            "an optimizer that needs gradients, its state and the parameters, and nothing else",
            "make the steps yourself: taut.jax.join(params), then params = worker.exchange(params, loss)",
        ) from None

"""A pytree of parameters and the flat vector that is exchanged: names and shapes of its leaves, and both directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from taut.errors import Misuse
from taut.jax.packages import package

ALONE = "params"  # the name of a pytree that is one array
PARTITION = "params, static = equinox.partition(model, equinox.is_inexact_array)"


class FlatTree:
    """The pytree ``params``, whose leaves are arrays of float32 on one device.

    ``vector``: its values, one leaf after the other, in memory of its own; ``parts``: names and shapes of the leaves.
    """

    def __init__(self, params: Any) -> None:
        jax = package("jax")
        found, self.treedef = jax.tree_util.tree_flatten_with_path(params)
        if not found:
            raise Misuse("taut.jax.join(a pytree without arrays)", "parameters", "give what the model's init returns")
        self.parts: dict[str, tuple[int, ...]] = {}
        devices = set[Any]()
        for path, leaf in found:
            name = leaf_name(jax, path)
            _check_leaf(jax, name, leaf)
            self.parts[name] = tuple(leaf.shape)
            devices |= leaf.devices() if isinstance(leaf, jax.Array) else set()
        if len(devices) > 1:
            remedy = "start one worker per device, and make its parameters under jax.default_device(...)"
            raise Misuse(f"parameters on {len(devices)} devices", "one device per worker", remedy)
        self.device = devices.pop() if devices else None
        self.vector = np.concatenate([np.asarray(leaf, np.float32).ravel() for _, leaf in found])
        self._shapes = list(self.parts.values())
        self._jax, self._split = jax, jax.jit(self.split)
        self._flatten = jax.jit(self.flatten)

    def split(self, vector: Any) -> Any:
        """Return the pytree of a vector's values. JAX may trace it."""
        leaves, offset = [], 0
        for shape in self._shapes:
            size = int(np.prod(shape))
            leaves.append(vector[offset : offset + size].reshape(shape))
            offset += size
        return self._jax.tree_util.tree_unflatten(self.treedef, leaves)

    def flatten(self, tree: Any) -> Any:
        """Return the values of a pytree of the same form as one vector of float32. JAX may trace it."""
        jnp = self._jax.numpy
        return jnp.concatenate([leaf.ravel().astype(jnp.float32) for leaf in self._jax.tree_util.tree_leaves(tree)])

    def tree_of(self, vector: npt.NDArray[np.float32]) -> Any:
        """Return the pytree of a vector that others may change later: its values are copied."""
        return self._split(self._jax.device_put(vector.copy(), self.device))

    def vector_of(self, tree: Any, what: str) -> Any:
        """Return the values of a pytree as one array of JAX's. Raises ``Misuse`` for one of another form."""
        self._check(tree, what)
        return self._flatten(tree)

    def _check(self, tree: Any, what: str) -> None:
        """Raise ``Misuse`` unless the tree has the leaves of the parameters."""
        leaves, treedef = self._jax.tree_util.tree_flatten(tree)
        if treedef != self.treedef:
            names = {leaf_name(self._jax, path) for path, _ in self._jax.tree_util.tree_flatten_with_path(tree)[0]}
            other = sorted(names ^ {*self.parts})[:4]
            differ = f" that differs in {', '.join(map(repr, other))}" if other else ""
            remedy = "jax.grad of a function of worker.params gives it" if what == "gradients" else ""
            raise Misuse(f"{what} in a pytree{differ}", "one of the form of the parameters that were joined", remedy)
        for (name, shape), leaf in zip(self.parts.items(), leaves, strict=True):
            if np.shape(leaf) != shape:
                raise Misuse(f"{what} with {name!r} of shape {np.shape(leaf)}", f"{shape}, as it was joined")


def leaf_name(jax: Any, path: Any) -> str:
    """Return a leaf's name in the saved model: the keys on the way to it, ``params.Dense_0.kernel``."""
    return str(jax.tree_util.keystr(path, simple=True, separator=".")) or ALONE


def _check_leaf(jax: Any, name: str, leaf: Any) -> None:
    if not isinstance(leaf, jax.Array | np.ndarray):
        given = f"the leaf {name!r} of type {type(leaf).__name__}"
        raise Misuse(given, "arrays of float32", f"keep all else out of the parameters: {PARTITION}")
    if leaf.dtype != np.float32:
        cast = "keep the weights in float32, and compute in another type (flax: param_dtype=jnp.float32)"
        remedy = cast if "float" in str(leaf.dtype) else f"keep it out of the parameters: {PARTITION}"
        raise Misuse(f"the leaf {name!r} of type {leaf.dtype}", "float32, as codecs and strategies work on", remedy)

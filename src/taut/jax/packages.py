"""The packages jax and optax, which are imported when they are asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from taut.errors import Misuse


def package(name: str) -> Any:
    """Return a package; ``Misuse`` where it is not installed."""
    try:
        found = import_module(name)
    except ImportError:
        found = None
    if found is None or found.__file__ is None:  # without a file: a folder of that name somewhere on the path
        raise Misuse(f"taut.jax without {name}", "JAX and optax", "pip install 'taut[jax]'")
    return found

"""``taut.jax.join``: pytrees of JAX in a run of one or of many (``pip install 'taut[jax]'``)."""

from __future__ import annotations

from taut.jax.jax_worker import JaxWorker
from taut.jax.join import join

__all__ = ["JaxWorker", "join"]

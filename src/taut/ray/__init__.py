"""``taut.ray.Trainer``: train a script or a function on a Ray cluster, from Python (``pip install 'taut[ray]'``)."""

from __future__ import annotations

from taut.ray.trainer import Trainer

__all__ = ["Trainer"]

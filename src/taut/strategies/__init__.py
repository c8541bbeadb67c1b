"""When may a worker go on, and how are updates merged? One file per strategy, all pure: events in, actions out.

- streams (``broadcast.py`` and what is built on it): updates as the codec emits them reach everybody;
- methods (``method.py``, over ``channels.py``): vectors are reduced, mixed or averaged, in rounds or pairwise.
"""

from __future__ import annotations

from taut.strategies.registry import REGISTRY, Choice, parse

__all__ = ["REGISTRY", "Choice", "parse"]

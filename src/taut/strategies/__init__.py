"""Strategies: when a worker may go on, and how updates are merged. Pure: events in, actions out.

Streams send every update to every worker: broadcast/ directly, tree/ along a spanning tree. Methods (api.py) exchange
vectors over the channels of delivery/: allreduce/ in every step, periodic/ now and then, gossip/ with neighbours,
server/ with a parameter server or a center. election/ and probing/ serve the runtime and ``taut probe``.
registry.py knows them all by name.
"""

from __future__ import annotations

from taut.strategies.registry import REGISTRY, Choice, parse

__all__ = ["REGISTRY", "Choice", "parse"]

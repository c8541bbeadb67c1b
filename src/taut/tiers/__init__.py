"""Tiers: one model over devices, an edge and the cloud, each with an exit of its own: ``from taut.tiers import Tiers``.

model.py        the model: a branch per device, fused at the edge; trained as any other, by ``joint_loss``
signs.py        features of one bit each, to be sent
exits.py        when an exit is sure; the joint loss
evaluation.py   where samples are answered, how well, and for how many bytes
serving.py      each tier in a process of its own (``taut serve``); messages.py: what they say to each other

A distributed deep neural network: Teerapittayanon, McDanel and Kung 2017. Names are loaded when they are first used, so
that importing this package does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taut.tiers.evaluation import TierReport, evaluate
    from taut.tiers.exits import Exits, entropy, joint_loss
    from taut.tiers.model import Tiers
    from taut.tiers.signs import Signs

_HOMES = {
    "Exits": "exits",
    "Signs": "signs",
    "TierReport": "evaluation",
    "Tiers": "model",
    "entropy": "exits",
    "evaluate": "evaluation",
    "joint_loss": "exits",
}

__all__ = ["Exits", "Signs", "TierReport", "Tiers", "entropy", "evaluate", "joint_loss"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'taut.tiers' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"taut.tiers.{_HOMES[name]}"), name)

"""Tools for large batches and averaged models: ``from taut.optim import LARS``.

lars.py, lamb.py    the step of each tensor in proportion to its weights; layerwise.py holds what they share
muon.py             matrices of hidden layers by orthogonalized momentum, the rest by AdamW
scaling.py          the learning rate for a batch of another size
warmup.py           the first steps at a smaller rate, then another scheduler
recalibration.py    batch-norm statistics that fit the final weights

They work with plain PyTorch too: nothing here knows of workers or of the network. Names are loaded when they are first
used, so that importing this package does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taut.optim.lamb import LAMB
    from taut.optim.lars import LARS
    from taut.optim.muon import Muon, muon_groups
    from taut.optim.recalibration import recalibrate
    from taut.optim.scaling import linear_scaling, sqrt_scaling
    from taut.optim.warmup import Warmup

_HOMES = {
    "LAMB": "lamb",
    "LARS": "lars",
    "Muon": "muon",
    "Warmup": "warmup",
    "linear_scaling": "scaling",
    "muon_groups": "muon",
    "recalibrate": "recalibration",
    "sqrt_scaling": "scaling",
}

__all__ = ["LAMB", "LARS", "Muon", "Warmup", "linear_scaling", "muon_groups", "recalibrate", "sqrt_scaling"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'taut.optim' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"taut.optim.{_HOMES[name]}"), name)

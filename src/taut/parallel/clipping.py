"""Clipping the gradient of a model that is cut, by the norm of all of it.

    n = sqrt(sum over all parts of |g_i|^2)        g_i <- g_i min(1, limit / n)

What several processes hold alike counts once. Pascanu et al. 2013, "On the difficulty of training recurrent networks".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

from taut.parallel.island import Island, island
from taut.parallel.whole import held_by

_ELSEWHERE: WeakKeyDictionary[nn.Module, frozenset[str]] = (
    WeakKeyDictionary()
)  # by model: what another process counts; found once, with messages


def clip_grad_norm(model: nn.Module, limit: float, *, group: Island | None = None) -> float:
    """Clip the gradient of the whole model to the norm ``limit``, before the optimizer's step in a loop of your own, and
    return the norm that it had. All processes of the island call it. (``worker.step(loss, clip_norm=limit)`` clips by
    itself.)

    >>> layer = nn.Linear(1, 1, bias=False)
    >>> layer.weight.grad = torch.full((1, 1), 4.0)
    >>> clip_grad_norm(layer, 1.0), round(layer.weight.grad.item(), 3)
    (4.0, 1.0)
    """
    group = group or island()
    if model not in _ELSEWHERE:
        lowest = {name: min(ranks) for name, ranks in held_by(model, group).items()} if group.size > 1 else {}
        _ELSEWHERE[model] = frozenset(name for name, rank in lowest.items() if rank != group.rank)
    given = [(name, each.grad) for name, each in model.named_parameters() if each.grad is not None]
    parts = [
        (name not in _ELSEWHERE[model], grad.to_local() if isinstance(grad, DTensor) else grad) for name, grad in given
    ]
    return clip_parts(parts, limit, lambda square: _total(square, group))


def clip_parts(parts: Iterable[tuple[bool, torch.Tensor]], limit: float, total: Callable[[float], float]) -> float:
    """Clip these gradients, each with whether it counts here, and return the norm of the whole. ``total`` adds up the
    squares of all processes. The formula is that of ``torch.nn.utils.clip_grad_norm_``."""
    given = list(parts)
    norm: float = total(sum(float(each.double().square().sum()) for counts, each in given if counts)) ** 0.5
    factor = limit / (norm + 1e-6)
    if factor < 1.0:
        for _, gradient in given:
            gradient.mul_(factor)
    return norm


def _total(square: float, group: Island) -> float:
    told = torch.tensor(square, dtype=torch.float64, device=group.device_type)
    if group.size > 1:
        dist.all_reduce(told)
    return float(told)

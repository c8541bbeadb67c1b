"""LARS: SGD with momentum, each tensor's rate in proportion to |weights| / |gradient|."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from taut.optim.layerwise import Layerwise, adapted, norm, ratio


@final
class LARS(Layerwise):
    """Layer-wise adaptive rate scaling, for convolutional networks with batches of thousands.

        local = eta |w| / (|g| + wd |w|)        1 where |w| = 0 and for tensors that are not adapted
        v = momentum v + lr local (g + wd w)    wd = 0 for tensors that are not adapted
        w = w - v

    The rate is inside the momentum, as in the paper: a change of ``lr`` acts on new gradients only.

    ``params``: parameters, named parameters or groups; every setting may differ by group. ``lr``: the rate for all,
    multiplied by ``local``; with the default eta, expect it to be 10 to 100 times SGD's. ``eta``: the trust coefficient.
    ``adapt``: True or False for a whole group; None leaves tensors of at most one dimension (biases, norm layers)
    unadapted and undecayed.

    >>> model = torch.nn.Linear(4, 2)
    >>> optimizer = LARS(model.parameters(), lr=10.0)
    >>> _ = torch.nn.init.constant_(model.weight, 1.0)
    >>> (1000 * model(torch.ones(1, 4)).sum()).backward()
    >>> optimizer.step()
    >>> round((model.weight - 1).norm().item() / 8**0.5, 4)  # lr * eta of its length, however steep the loss
    0.01

    You, Gitman, Ginsburg, "Large Batch Training of Convolutional Networks", 2017, arXiv:1708.03888.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor,
        *,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        eta: float = 0.001,
        adapt: bool | None = None,
    ) -> None:
        settings = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "eta": eta, "adapt": adapt}
        super().__init__(params, settings)

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        self._expect(group, "momentum", at_least=0.0, below=1.0)
        self._expect(group, "eta", at_least=0.0)

    def _update(self, w: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        rate = group["lr"]
        if adapted(w, group):
            decay, w_norm = group["weight_decay"], norm(w)
            rate = rate * ratio(group["eta"] * w_norm, norm(g) + decay * w_norm, w_norm)
            if decay:
                g = g.add(w, alpha=decay)
        change = g * rate
        if group["momentum"]:
            state = self.state[w]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(w)
            change = state["momentum_buffer"].mul_(group["momentum"]).add_(change)
        w.sub_(change)

"""LAMB: Adam whose step, for each tensor, is as long as a given share of the weights."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from taut.errors import Misuse
from taut.optim.layerwise import Layerwise, adapted, norm, ratio


@final
class LAMB(Layerwise):
    """Layer-wise adaptive moments, for transformers with batches of thousands.

        m = b1 m + (1 - b1) g              v = b2 v + (1 - b2) g^2
        u = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps) + wd w
        w = w - lr (|w| / |u|) u

    The trust ratio |w| / |u| is 1 where either is 0. Tensors that are not adapted take 1 for it, and no weight decay.
    The paper's function phi of |w| is the identity.

    ``params``: parameters, named parameters or groups; every setting may differ by group. ``lr``: the share of its
    length by which a tensor moves. ``betas``: decay of the two moments. ``adapt``: True or False for a whole group;
    None leaves tensors of at most one dimension (biases, norm layers) unadapted and undecayed.

    >>> model = torch.nn.Linear(4, 2)
    >>> optimizer = LAMB(model.parameters(), lr=0.01, weight_decay=0.0)
    >>> _ = torch.nn.init.constant_(model.weight, 3.0)
    >>> model(torch.ones(1, 4)).sum().backward()
    >>> optimizer.step()
    >>> round((model.weight - 3).norm().item() / (3 * 8**0.5), 4)
    0.01

    You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2019, arXiv:1904.00962.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        adapt: bool | None = None,
    ) -> None:
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "adapt": adapt}
        super().__init__(params, settings)

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        self._expect(group, "eps", at_least=0.0)
        if len(group["betas"]) != 2 or not all(0.0 <= beta < 1.0 for beta in group["betas"]):
            raise Misuse(f"LAMB with betas={group['betas']}", "two numbers >= 0 and < 1", "try (0.9, 0.999)")

    def _update(self, w: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        state = self.state[w]
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(w), exp_avg_sq=torch.zeros_like(w))
        state["step"] += 1
        m: Tensor = state["exp_avg"].lerp_(g, 1.0 - beta1)
        v: Tensor = state["exp_avg_sq"].mul_(beta2).addcmul_(g, g, value=1.0 - beta2)
        root = (v / (1.0 - beta2 ** state["step"])).sqrt_().add_(group["eps"])
        u = (m / (1.0 - beta1 ** state["step"])).div_(root)
        rate = group["lr"]
        if adapted(w, group):
            if group["weight_decay"]:
                u.add_(w, alpha=group["weight_decay"])
            w_norm = norm(w)
            rate = rate * ratio(w_norm, norm(u), w_norm)
        w.sub_(u.mul_(rate))

"""Muon: momentum whose matrices are made orthogonal, for the hidden layers; AdamW for all other tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.optim.optimizer import ParamsT

from taut.errors import Misuse
from taut.optim.layerwise import Layerwise, adapted

QUINTIC = (3.4445, -4.7750, 2.0315)  # a, b, c: the steepest at 0 that keeps singular values between about 0.7 and 1.2
RMS = 0.2  # root mean square of a step of AdamW, about; that of a step of Muon is made as large


@final
class Muon(Layerwise):
    """Momentum, orthogonalized, for matrices of hidden layers. Tensors that are not adapted take AdamW's step.

        m = mu m + g;      u = g + mu m (nesterov), else m
        O = N(N(...N(u / |u|)));      N(X) = a X + b (X X') X + c (X X')^2 X          towards U V' of u = U S V'
        w = (1 - lr wd) w - lr 0.2 sqrt(max(rows, columns)) O

    The factor gives a step the size that AdamW's have, so that one ``lr`` suits all tensors. A tensor of more dimensions
    (a convolution) is the matrix of its first one by all others. Weight decay is of matrices alone.

    ``params``: parameters, named parameters or groups; every setting may differ by group. ``momentum``, ``nesterov``: of
    matrices. ``iterations``: how often N is applied. ``betas``, ``eps``: of AdamW. ``adapt``: True or False for a whole
    group; None takes every tensor of two dimensions and more for a matrix, embeddings and the last layer too, which are
    better left to AdamW: ``muon_groups`` makes the groups.

    >>> model = nn.Linear(4, 4, bias=False)
    >>> before, optimizer = model.weight.detach().clone(), Muon(model.parameters(), lr=1.0, weight_decay=0.0)
    >>> model(torch.eye(4)).diagonal().sum().backward()
    >>> optimizer.step()
    >>> step = (before - model.weight).detach() / (0.2 * 4**0.5)  # the gradient is the identity, and so is the step
    >>> bool((step - torch.eye(4)).abs().max() < 0.35)
    True

    Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"; Liu et al. 2025, "Muon is scalable for
    LLM training", arXiv:2502.16982 (the factor, weight decay).
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        *,
        momentum: float = 0.95,
        nesterov: bool = True,
        iterations: int = 5,
        weight_decay: float = 0.1,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        adapt: bool | None = None,
    ) -> None:
        given = {"lr": lr, "momentum": momentum, "nesterov": nesterov, "iterations": iterations, "betas": betas}
        super().__init__(params, {**given, "eps": eps, "weight_decay": weight_decay, "adapt": adapt})

    def _check(self, group: dict[str, Any]) -> None:
        super()._check(group)
        self._expect(group, "momentum", at_least=0.0, below=1.0)
        self._expect(group, "eps", at_least=0.0)
        if isinstance(group["iterations"], bool) or not isinstance(group["iterations"], int) or group["iterations"] < 1:
            raise Misuse(f"Muon with iterations={group['iterations']}", "a whole number from 1 up", "5 are enough")
        if len(group["betas"]) != 2 or not all(0.0 <= beta < 1.0 for beta in group["betas"]):
            raise Misuse(f"Muon with betas={group['betas']}", "two numbers >= 0 and < 1", "try (0.9, 0.999)")
        for one in group.get("params", ()) if group["adapt"] else ():
            tensor = one[1] if isinstance(one, tuple) else one
            if tensor.ndim < 2:
                given = f"adapt=True for a tensor of shape {tuple(tensor.shape)}"
                raise Misuse(given, "matrices", "leave adapt out, or put the tensor into another group")

    def _update(self, w: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        if not adapted(w, group):
            self._adam(w, g, group)
            return
        state, mu = self.state[w], group["momentum"]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(w)
        m: Tensor = state["momentum_buffer"].mul_(mu).add_(g)
        step = orthogonal((g.add(m, alpha=mu) if group["nesterov"] else m).flatten(1), group["iterations"])
        if group["weight_decay"]:
            w.mul_(1.0 - group["lr"] * group["weight_decay"])
        w.sub_(step.view_as(w).to(w.dtype) * (group["lr"] * RMS * max(step.shape) ** 0.5))

    def _adam(self, w: Tensor, g: Tensor, group: dict[str, Any]) -> None:
        """Take AdamW's step; matrices alone are decayed, as by Muon's."""
        beta1, beta2 = group["betas"]
        state = self.state[w]
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(w), exp_avg_sq=torch.zeros_like(w))
        state["step"] += 1
        m: Tensor = state["exp_avg"].lerp_(g, 1.0 - beta1)
        v: Tensor = state["exp_avg_sq"].mul_(beta2).addcmul_(g, g, value=1.0 - beta2)
        root = (v / (1.0 - beta2 ** state["step"])).sqrt_().add_(group["eps"])
        if w.ndim > 1 and group["weight_decay"]:
            w.mul_(1.0 - group["lr"] * group["weight_decay"])
        w.sub_((m / (1.0 - beta1 ** state["step"])).div_(root).mul_(group["lr"]))


def orthogonal(u: Tensor, iterations: int = 5) -> Tensor:
    """Return a matrix near to the orthogonal factor of ``u``, in float32 at least: singular values near 1, the vectors
    those of ``u``. Zero stays zero.

    >>> values = torch.linalg.svdvals(orthogonal(torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.5, 0.0]])))
    >>> bool(((values > 0.6) & (values < 1.25)).all())
    True
    """
    x = u.to(torch.promote_types(u.dtype, torch.float32))
    tall = x.shape[0] > x.shape[1]
    x = x.mT if tall else x
    x = x / torch.linalg.vector_norm(x).clamp(min=torch.finfo(x.dtype).tiny)
    a, b, c = QUINTIC
    for _ in range(iterations):
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT.contiguous() if tall else x


def muon_groups(model: nn.Module, *outside: nn.Module | nn.Parameter, **settings: Any) -> list[dict[str, Any]]:
    """Return two groups for ``Muon``: the matrices of hidden layers, and all other parameters, for AdamW. ``outside``:
    modules or parameters that are not hidden: the last layer above all. Embeddings (``nn.Embedding``) never are.
    ``settings``: of the second group, ``lr`` for example.

    >>> model = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 8), nn.Linear(8, 9))
    >>> [len(group["params"]) for group in muon_groups(model, model[2], lr=0.01)]  # of the first: one matrix
    [1, 4]
    """
    left: set[Tensor] = {one for each in outside for one in _parameters(each)}
    left |= {one for each in model.modules() if isinstance(each, nn.Embedding) for one in each.parameters()}
    everything = list(model.parameters())
    missing = left - set(everything)
    if missing:
        shapes = ", ".join(str(tuple(one.shape)) for one in missing)
        raise Misuse(f"muon_groups with a tensor that the model does not have: {shapes}", "its own modules or parameters")
    hidden = [one for one in everything if one.ndim > 1 and one not in left]
    rest = [one for one in everything if one.ndim <= 1 or one in left]
    return [{"params": hidden, "adapt": True}, {"params": rest, "adapt": False, **settings}]


def _parameters(given: nn.Module | nn.Parameter) -> Iterable[Tensor]:
    return given.parameters() if isinstance(given, nn.Module) else (given,)

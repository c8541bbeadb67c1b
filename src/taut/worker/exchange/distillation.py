"""The agreement with peers' stale predictions, for ``codistillation``: the model's last forward pass, done again with
their weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from taut.strategies.gossip.codistillation import Codistillation, CodistillationState, Teacher

if TYPE_CHECKING:
    import torch
    from torch import nn

    from taut.worker.exchange.base import Exchange
    from taut.worker.exchange.rounds import RoundExchange
    from taut.worker.model.flat_params import FlatParams


def distillation_of(exchange: Exchange | None, params: FlatParams | None, model: nn.Module) -> Distillation | None:
    """Return the agreement term of a run whose method asks for one; None for all others."""
    from taut.worker.exchange.rounds import RoundExchange

    if isinstance(exchange, RoundExchange) and isinstance(exchange.method, Codistillation) and params is not None:
        return Distillation(model, params, exchange)
    return None


class Distillation:
    """Watches ``model``: what went into its last forward pass in training mode, and what came out.

    Teachers see the same inputs, without gradients and without dropout. Batch norm uses the batch's own statistics there,
    as in the pass it repeats, and the model's running ones are left alone.
    """

    def __init__(self, model: nn.Module, params: FlatParams, rounds: RoundExchange) -> None:
        self.model, self.params, self.rounds = model, params, rounds
        self._seen: tuple[Any, Mapping[str, Any], Any] | None = None
        self._repeating = False
        self._loaded: dict[int, tuple[Teacher, dict[str, torch.Tensor]]] = {}
        self._names = _parameter_names(model, params)
        self._hook = model.register_forward_hook(self._watch, with_kwargs=True)

    def close(self) -> None:
        """Stop watching: another phase, or another session, has its own."""
        self._hook.remove()
        self._seen = None

    def _watch(self, module: nn.Module, args: Any, kwargs: Mapping[str, Any], output: Any) -> None:
        import torch

        if module.training and torch.is_grad_enabled() and not self._repeating:
            self._seen = (args, kwargs, output)

    def term(self) -> torch.Tensor | None:
        """Return weight * agreement of the last forward pass, to be added to its loss; None where there is none: no pass
        since the last call, no teacher yet, or still in the burn-in."""
        method, state = self.rounds.method, self.rounds.method_state
        assert isinstance(method, Codistillation)
        seen, self._seen = self._seen, None
        if seen is None or not isinstance(state, CodistillationState) or not method.active(state):
            return None
        args, kwargs, output = seen
        own = _tensor(output)
        if own is None or not own.requires_grad:
            return None
        teachers = [self._predict(rank, teacher, args, kwargs) for rank, teacher in sorted(state.teachers.items())]
        agreement = disagreement(own, teachers, method.loss)
        state.agreement = float(agreement.detach())
        return method.weight * agreement if math.isfinite(state.agreement) else None  # a broken teacher teaches nothing

    def _predict(self, rank: int, teacher: Teacher, args: Any, kwargs: Mapping[str, Any]) -> torch.Tensor:
        import torch
        from torch.func import functional_call

        parts = {**self._weights(rank, teacher), **{name: b.clone() for name, b in self.model.named_buffers()}}
        dropouts = [m for m in self.model.modules() if m.training and "Dropout" in type(m).__name__]
        self._repeating = True
        for module in dropouts:
            module.training = False
        try:
            with torch.no_grad():
                made = _tensor(functional_call(self.model, parts, args, dict(kwargs), tie_weights=True))
        finally:
            self._repeating = False
            for module in dropouts:
                module.training = True
        assert made is not None
        return made

    def _weights(self, rank: int, teacher: Teacher) -> dict[str, torch.Tensor]:
        """Return the teacher's vector as named parameters, on the model's device: made once for each that arrives."""
        import torch

        known = self._loaded.get(rank)
        if known is not None and known[0] is teacher:
            return known[1]
        vector = torch.tensor(teacher.weights, device=self.params.tensor.device)
        views = self.params.views(vector)
        named = {name: view.to(own.dtype) for name, (own, view) in zip(self._names, views, strict=True)}
        self._loaded[rank] = (teacher, named)
        for gone in set(self._loaded) - set(self.rounds.method_state.teachers):
            del self._loaded[gone]
        return named


def disagreement(own: torch.Tensor, teachers: list[torch.Tensor], loss: str = "auto") -> torch.Tensor:
    """Return how far ``own`` outputs are from the mean of the teachers' predictions: KL(mean of softmaxes || own
    softmax), per sample, or the mean squared difference to the mean output.

    >>> import torch
    >>> own, other = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 2.0]])
    >>> float(disagreement(own, [own])), round(float(disagreement(own, [other])), 3)
    (0.0, 1.523)
    >>> float(disagreement(torch.tensor([[1.0]]), [torch.tensor([[3.0]]), torch.tensor([[1.0]])]))
    1.0
    """
    import torch
    from torch.nn import functional as F

    if loss == "kl" or (loss == "auto" and own.ndim == 2 and own.shape[1] > 1):
        wanted = torch.stack([F.softmax(each, -1) for each in teachers]).mean(0)
        spoken = F.log_softmax(own, -1)
        return F.kl_div(spoken.flatten(0, -2), wanted.flatten(0, -2), reduction="batchmean").clamp_min(0.0)
    return F.mse_loss(own, torch.stack(teachers).mean(0))


def _tensor(output: Any) -> torch.Tensor | None:
    """Return the prediction in what a model returns: itself, its ``logits``, or the first tensor of a tuple, list or
    dict."""
    import torch

    if isinstance(output, torch.Tensor):
        return output
    if isinstance(getattr(output, "logits", None), torch.Tensor):
        return output.logits  # type: ignore[no-any-return]
    parts = output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple | list) else ()
    return next((part for part in parts if isinstance(part, torch.Tensor)), None)


def _parameter_names(model: nn.Module, params: FlatParams) -> list[str]:
    """Return the names of the parameters in the order of the flat vector."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [names[id(parameter)] for parameter in params.parameters]

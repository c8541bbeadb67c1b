"""The scaler that a script gives to ``worker.step``: float16 gradients of a scaled loss do not vanish, and may overflow.

Where a gradient overflows, its step is not made, and the scale shrinks (``torch.amp.GradScaler``). Gradients are unscaled
before any of them is sent, so each worker's scale is its own. The processes of an island have one scale, and make a step
together or none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from taut.errors import Misuse
from taut.worker.model.sharded import local
from taut.worker.optimizer.joined import Optimizer, members_of, parameters_of


class LossScaling:
    """``kept``: the state of the scaler in the checkpoint that this run continues, until the script gives a scaler.

    >>> scaling, layer = LossScaling(), torch.nn.Linear(1, 1)
    >>> sgd = torch.optim.SGD(layer.parameters(), lr=0.1)
    >>> scaling.take(torch.amp.GradScaler("cpu", init_scale=4.0))
    True
    >>> scaling.scaled(layer(torch.tensor([[float("inf")]])).sum()).backward()
    >>> scaling.unscale(sgd), scaling.scale
    (True, 2.0)
    """

    def __init__(self) -> None:
        self.kept: Mapping[str, Any] | None = None
        self._scaler: torch.amp.GradScaler | None = None

    def take(self, scaler: Any) -> bool:
        """Take the scaler of this step; return whether there is one that is enabled."""
        if scaler is None:
            self._scaler = None
            return False
        if not isinstance(scaler, torch.amp.GradScaler):
            raise Misuse(f"step(scaler={type(scaler).__name__})", "a torch.amp.GradScaler")
        self._scaler = scaler
        if self.kept is not None:
            scaler.load_state_dict(dict(self.kept))
            self.kept = None
        return scaler.is_enabled()

    @property
    def scale(self) -> float:
        """Return the scale; 1 without a scaler."""
        return 1.0 if self._scaler is None else self._scaler.get_scale()

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        assert self._scaler is not None
        made: torch.Tensor = self._scaler.scale(loss)
        return made

    def unscale(self, optimizer: Optimizer) -> bool:
        """Divide the gradients by the scale, which is the next step's then; return whether one is not finite."""
        assert self._scaler is not None
        found = 0.0
        for member in members_of(optimizer):
            self._scaler.unscale_(member)
            found += sum(float(each) for each in self._scaler._found_inf_per_device(member).values())
        self._scaler.update()
        return found > 0.0

    def unscale_parts(self, optimizer: Optimizer, largest: Callable[[float], float]) -> bool:
        """Do the same in an island. ``largest`` returns the largest value of its processes: an overflow of one is all's.
        GradScaler has no way for a model that is cut in part: its kernel takes no tensors and DTensors together."""
        assert self._scaler is not None
        inverse, finite = 1.0 / self.scale, True
        for parameter in parameters_of(optimizer):
            if parameter.grad is not None:
                gradient = local(parameter.grad)
                finite = finite and bool(gradient.isfinite().all())
                gradient.mul_(inverse)
        overflow = largest(0.0 if finite else 1.0) > 0.0
        first = parameters_of(optimizer)[0].device
        state = self._scaler._per_optimizer_states[id(members_of(optimizer)[0])]
        state["found_inf_per_device"] = {first: torch.full((), float(overflow), device=first)}
        self._scaler.update()
        return overflow

    def state(self) -> Mapping[str, Any] | None:
        """Return the state that a checkpoint holds."""
        return self.kept if self._scaler is None else self._scaler.state_dict()

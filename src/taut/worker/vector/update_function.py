"""The script's own update as an optimizer: ``update(w, gradient, lr)``, which changes ``w`` in place.

As an optimizer it goes through everything that optimizers go through: gradients are exchanged before its step, its
learning rate is scaled and agreed upon, its arrays are in checkpoints and are given to newcomers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from taut.errors import Misuse

Apply = Callable[[torch.Tensor, float], object]
STEPS = "step"  # in the optimizer's state: how many steps it has made


class UpdateFunction(torch.optim.Optimizer):
    """``apply(gradient, lr)`` moves ``parameters`` by a flat gradient. ``arrays``: what it keeps from step to step, by
    name, changed in place; each has as many elements as all parameters, or no more than one of them.

    >>> w = nn.Parameter(torch.zeros(2))
    >>> sgd = UpdateFunction([w], lambda gradient, lr: w.data.sub_(lr * gradient), 0.5, {})
    >>> sgd.give(torch.ones(2)); sgd.step(); w.tolist()
    [-0.5, -0.5]
    """

    def __init__(self, parameters: Sequence[nn.Parameter], apply: Apply, lr: float, arrays: Mapping[str, torch.Tensor]):
        super().__init__(parameters, {"lr": lr})
        self._parts, self._apply, self._arrays = list(parameters), apply, dict(arrays)
        self._sizes = [part.numel() for part in self._parts]
        self._slots = [slot for name, array in arrays.items() for slot in self._slots_of(name, array)]
        self._steps = torch.zeros(())
        self._gradient: torch.Tensor | None = None  # made on first use
        self._views: list[torch.Tensor] = []

    def __repr__(self) -> str:
        return f"UpdateFunction(lr={self.param_groups[0]['lr']})"

    def __deepcopy__(self, memo: dict[int, Any]) -> UpdateFunction:
        """Return a stand-in whose steps move nothing: it shows what state a first step makes."""
        parts = [nn.Parameter(torch.zeros_like(part)) for part in self._parts]
        arrays = {name: array.clone() for name, array in self._arrays.items()}
        return UpdateFunction(parts, move_nothing, self.param_groups[0]["lr"], arrays)

    @property
    def arrays(self) -> list[torch.Tensor]:
        """Return all that it keeps from step to step: the script's arrays, and the count of steps."""
        return [*self._arrays.values(), self._steps]

    def _slots_of(self, name: str, array: torch.Tensor) -> list[tuple[nn.Parameter, str, torch.Tensor]]:
        """Return under which parameter the array, or each part of it, is kept."""
        if array.numel() == sum(self._sizes):
            pieces = zip(self._parts, torch.split(array.view(-1), self._sizes), strict=True)
            return [(part, name, piece.view(part.shape)) for part, piece in pieces]
        for part, size in zip(self._parts, self._sizes, strict=True):
            if array.numel() <= size:
                return [(part, name, array)]
        expected = f"{sum(self._sizes):,}, as many as the vector, or at most {max(self._sizes):,}, as its largest part"
        raise Misuse(f"state {name!r} of {array.numel():,} elements", expected)

    def give(self, gradient: torch.Tensor, weight: float = 1.0) -> None:
        """Take the gradient, times ``weight``, for the next step; add it to one that waits for its step."""
        if self._gradient is None:
            self._gradient = torch.empty(sum(self._sizes), device=gradient.device)
            parts = zip(self._parts, torch.split(self._gradient, self._sizes), strict=True)
            self._views = [view.view(part.shape) for part, view in parts]
        if self._parts[0].grad is None:
            torch.mul(gradient.reshape(-1), weight, out=self._gradient)
        else:
            self._gradient.add_(gradient.reshape(-1), alpha=weight)
        for part, view in zip(self._parts, self._views, strict=True):
            part.grad = view

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Call the function with the gradient, if there is one."""
        if closure is not None:
            raise Misuse("step(closure) of an update function", "no closure", "give worker.step the gradient")
        if all(part.grad is None for part in self._parts):
            return
        self._take_state()
        self._apply(self._whole_gradient(), self.param_groups[0]["lr"])
        self._steps += 1
        self._show_state()

    def _whole_gradient(self) -> torch.Tensor:
        """Return the parts' gradients as one vector; without a copy where they are in the vector that was given."""
        given = [part.grad for part in self._parts]
        if self._gradient is not None and all(one is view for one, view in zip(given, self._views, strict=True)):
            return self._gradient
        parts = zip(self._parts, given, strict=True)
        return torch.cat([(torch.zeros_like(part) if one is None else one).reshape(-1) for part, one in parts])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state into the script's own arrays. Raises ``ValueError`` for one of other arrays."""
        super().load_state_dict(state_dict)
        self._take_state()
        if self.state:
            self._show_state()

    def _show_state(self) -> None:
        """Show the script's arrays, themselves, as this optimizer's state."""
        self.state[self._parts[0]][STEPS] = self._steps
        for part, name, view in self._slots:
            self.state[part][name] = view

    def _take_state(self) -> None:
        """Copy into the script's arrays what others have put in their place: a checkpoint, or a strategy."""
        if not self.state:
            return
        for part, name, view in [(self._parts[0], STEPS, self._steps), *self._slots]:
            kept = self.state[part].get(name)
            if kept is None or kept.shape != view.shape:
                raise ValueError(f"no {name!r} of shape {tuple(view.shape)}")
            if kept is not view:
                view.copy_(kept)


def move_nothing(gradient: torch.Tensor, lr: float) -> None:
    """Make no change: the script moves its array itself, or the step is tried on a copy."""

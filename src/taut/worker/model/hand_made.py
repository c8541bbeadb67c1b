"""Weights that a script updates by itself, without an optimizer of torch's: taut sees an optimizer in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch

from taut.errors import Misuse
from taut.worker.optimizer.joined import members_of

if TYPE_CHECKING:
    from taut.strategies.registry import Choice

BY_FUNCTION = "give the update as a function, taut.join(model, update), and call worker.step(loss)"


class HandMadeUpdate(torch.optim.Optimizer):
    """An optimizer whose step is the script's function ``update``; without one, the loop of the script moves the weights.

    It has no state and no learning rate: those are the script's own.

    >>> layer = torch.nn.Linear(2, 1)
    >>> def descend():
    ...     for each in layer.parameters():
    ...         each -= 0.1 * each.grad
    >>> optimizer, before = HandMadeUpdate(layer.parameters(), descend), layer.bias.item()
    >>> layer(torch.ones(1, 2)).sum().backward(); optimizer.step()
    >>> round(before - layer.bias.item(), 6)
    0.1
    """

    def __init__(self, parameters: Iterable[Any], update: Callable[[], Any] | None = None) -> None:
        self._update = update
        super().__init__([each for each in parameters if each.requires_grad], {"lr": 0.0, "by_hand": True})

    @property
    def inline(self) -> bool:
        """Return whether the update is written out in the script's loop: taut cannot make it."""
        return self._update is None

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Call the script's function, without gradients being recorded."""
        if self._update is None:
            remedy = f"move the weights in your loop, then call worker.exchange(loss); or {BY_FUNCTION}"
            raise Misuse("worker.step(loss) without an optimizer", "an optimizer, or a function that updates", remedy)
        with torch.no_grad():
            self._update()


def is_inline(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether some weights are moved by the script's loop itself."""
    return any(isinstance(one, HandMadeUpdate) and one.inline for one in members_of(optimizer))


def check_rates(optimizer: torch.optim.Optimizer, scaling: object) -> None:
    """Raise ``Misuse`` where learning rates are to be scaled and the script keeps them to itself."""
    if scaling is not None and any(isinstance(one, HandMadeUpdate) for one in members_of(optimizer)):
        raise Misuse(
            f"--scale-lr {scaling} and weights that are updated by hand",
            "an optimizer of torch's, whose learning rates can be scaled",
            "take torch.optim.SGD, or scale the rate in the script, by worker.workers",
        )


def check_reachable(optimizer: torch.optim.Optimizer, choice: Choice) -> None:
    """Raise ``Misuse`` where the strategy has a part in the step, and the script's loop makes it out of taut's reach."""
    if not is_inline(optimizer) or not choice.is_method:
        return
    gradients = choice.kind.vector == "gradients"  # then every worker makes every step, also without data
    if gradients or choice.method().shapes_gradient:
        raise Misuse(
            f"weights that the loop moves by hand, under {choice.name}",
            f"a step that taut makes, since {choice.name} {'averages' if gradients else 'changes'} gradients before it",
            f"{BY_FUNCTION}; or take another strategy, such as async",
        )

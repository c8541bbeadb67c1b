"""Gradual warm-up: the first steps at a smaller rate, then another scheduler."""

from __future__ import annotations

from typing import Any, final

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from taut.errors import Misuse


@final
class Warmup(LRScheduler):
    """Raises each group's learning rate along a line for N steps, then lets ``after`` go on.

        lr(t) = start + (lr - start) t / N      for t = 0 .. N
        lr(N + k) = the rate of ``after`` at its step k, or the last rate without ``after``

    ``optimizer``: made with the full rate, ``lr``. ``steps``: N; or ``epochs`` (may be a fraction) of
    ``steps_per_epoch``. ``workers``: start at lr / workers, the rate of one worker alone. ``start``: or at this rate, the
    same for all groups. With neither, start at lr / (N + 1). ``after``: a scheduler of the same optimizer, made before
    this one; the warm-up leads to the rate that it begins with. Call ``step`` once after each step of the optimizer;
    ``after`` is stepped by it, so its lengths count steps, from the end of the warm-up.

    Chains with other schedulers: if one has scaled the rate in between, the warm-up scales what it finds.

    >>> import torch
    >>> optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.8)
    >>> after = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    >>> warmup, seen = Warmup(optimizer, steps=4, workers=8, after=after), []
    >>> for _ in range(7):
    ...     seen.append(round(warmup.get_last_lr()[0], 3))
    ...     optimizer.step()
    ...     warmup.step()
    >>> seen
    [0.1, 0.275, 0.45, 0.625, 0.8, 0.4, 0.2]

    Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", 2017, arXiv:1706.02677, section 2.2.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        steps: int | None = None,
        *,
        epochs: float | None = None,
        steps_per_epoch: int | None = None,
        workers: int | None = None,
        start: float | None = None,
        after: LRScheduler | None = None,
    ) -> None:
        self.steps = _steps(steps, epochs, steps_per_epoch)
        if after is not None:
            _check_after(after, optimizer)
        self.after = after
        full = after.get_last_lr() if after else [g.get("initial_lr", g["lr"]) for g in optimizer.param_groups]
        self.targets = [float(lr) for lr in full]
        self.shares = _shares(self.targets, self.steps, workers, start)
        super().__init__(optimizer)

    @property
    def finished(self) -> bool:
        """Return whether the full rate is reached."""
        return bool(self.last_epoch >= self.steps)

    def step(self, epoch: int | None = None) -> None:
        super().step(epoch)
        if self.after is not None and self.last_epoch > self.steps:
            self.after.step()
            self._last_lr = self.after.get_last_lr()

    def get_lr(self) -> list[float | Tensor]:
        """Return the rates of this step, from those in the groups. Use ``get_last_lr`` to look at them."""
        found = [group["lr"] for group in self.optimizer.param_groups]
        if self.last_epoch > self.steps:
            return found
        if self.last_epoch == 0:
            return [lr * factor for lr, factor in zip(found, self._factors(0), strict=True)]
        now, before = self._factors(self.last_epoch), self._factors(self.last_epoch - 1)
        # The exact line, so that rounding does not add up, unless somebody else scaled the rate since our last step.
        return [
            target * f if bool(lr == ours) else lr * (f / g)
            for lr, ours, target, f, g in zip(found, self._last_lr, self.targets, now, before, strict=True)
        ]

    def _get_closed_form_lr(self) -> list[float | Tensor]:
        """Return the first rates, for a SequentialLR that hands over to the warm-up: the steps before do not count."""
        factors = self._factors(min(self.last_epoch, self.steps))
        return [target * f for target, f in zip(self.targets, factors, strict=True)]

    def _factors(self, t: int) -> list[float]:
        left = 1.0 - t / self.steps if self.steps else 0.0
        return [1.0 - (1.0 - share) * left for share in self.shares]  # exactly 1 at the end

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the optimizer; the state of ``after`` is in it."""
        state = {key: value for key, value in super().state_dict().items() if key != "after"}
        return {**state, "after": self.after.state_dict() if self.after is not None else None}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from ``state_dict``, of a warm-up that was made with the same kind of ``after``."""
        inner = state_dict["after"]
        if (inner is None) != (self.after is None):
            had, has = ("no" if each is None else "an" for each in (inner, self.after))
            raise Misuse(f"the state of a warm-up with {had} `after`", f"one with {has} `after`", "make both alike")
        super().load_state_dict({key: value for key, value in state_dict.items() if key != "after"})
        if self.after is not None:
            self.after.load_state_dict(inner)


def _steps(steps: int | None, epochs: float | None, steps_per_epoch: int | None) -> int:
    if (steps is None) == (epochs is None) or (epochs is None) != (steps_per_epoch is None):
        given = f"Warmup(steps={steps}, epochs={epochs}, steps_per_epoch={steps_per_epoch})"
        raise Misuse(given, "either steps, or epochs with steps_per_epoch", "try epochs=5, steps_per_epoch=len(loader)")
    for name, value in (("steps", steps), ("steps_per_epoch", steps_per_epoch)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise Misuse(f"Warmup({name}={value!r})", "a whole number >= 0", "0 means no warm-up")
    if epochs is None or steps_per_epoch is None:
        assert steps is not None
        return steps
    if not 0.0 <= epochs < float("inf"):
        raise Misuse(f"Warmup(epochs={epochs!r})", "a finite number >= 0", "0 means no warm-up")
    return round(epochs * steps_per_epoch)


def _shares(targets: list[float], steps: int, workers: int | None, start: float | None) -> list[float]:
    """Return the part of its full rate that each group begins with."""
    if workers is not None and start is not None:
        raise Misuse(f"Warmup(workers={workers}, start={start})", "one of the two")
    if workers is not None:
        if not 1 <= workers < float("inf"):
            raise Misuse(f"Warmup(workers={workers!r})", "at least 1")
        return [1.0 / workers] * len(targets)
    if start is None:
        return [1.0 / (steps + 1)] * len(targets)
    if not 0.0 < start <= min(targets):
        expected = f"a rate over 0 (a step of 0 is wasted) and at most the optimizer's, {min(targets):g}"
        remedy = "make the optimizer with the full rate, or give workers= instead"
        raise Misuse(f"Warmup(start={start!r})", expected, remedy)
    return [start / target for target in targets]


def _check_after(after: LRScheduler, optimizer: Optimizer) -> None:
    if isinstance(after, ReduceLROnPlateau) or not isinstance(after, LRScheduler):
        remedy = "step it yourself once warmup.finished is true"
        raise Misuse(f"Warmup(after={type(after).__name__})", "a scheduler whose step takes no argument", remedy)
    if after.optimizer is not optimizer:
        raise Misuse("`after` with another optimizer than the warm-up's", "the same", "make both from one optimizer")

"""A worker's own step: its loss, and errors in it that tell the user what to try."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from taut.errors import Misuse, NonFiniteLoss

if TYPE_CHECKING:
    from taut.worker.participant import Participant


log = logging.getLogger("taut")


class LastLoss:
    """The loss of the last step. One on a GPU is read a step later, so that no step waits for the device.

    ``value``: the last loss that was read.
    """

    def __init__(self, worker: Participant) -> None:
        self._worker = worker
        self.value: float | None = None
        self._late: int | None = None  # the step whose loss is on its way from the device
        self._copy: torch.Tensor | None = None  # of that loss, in memory that the device writes to
        self._copied: Any = None  # the event after the copy

    def note(self, loss: torch.Tensor | float) -> float | torch.Tensor:
        """Note and return the loss of a step: as a number, or the detached tensor where that is on a GPU.

        ``NonFiniteLoss`` for a loss that is NaN or infinite; one on a GPU is found by the next call, or by ``read``."""
        self.read()
        if hasattr(loss, "detach"):
            loss = loss.detach()
            if loss.is_cuda:
                self._fetch(loss.reshape(()))
                return loss
        try:
            found = float(loss)
        except (TypeError, ValueError, RuntimeError):  # an array of several elements, a text
            raise Misuse(f"a loss that is a {type(loss).__name__}", "one number", "such as loss.mean()") from None
        self.value = self._checked(found, self._worker.steps)
        return found

    def _fetch(self, loss: torch.Tensor) -> None:
        """Have the device write the loss to the host when it is computed."""
        if self._copy is None or self._copy.dtype != loss.dtype:
            self._copy = torch.empty((), dtype=loss.dtype, pin_memory=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._copy.copy_(loss, non_blocking=True)
        self._copied.record()
        self._late = self._worker.steps

    def read(self) -> float | None:
        """Return the loss of the last step, waiting for the device if need be; ``NonFiniteLoss`` as in ``note``."""
        step, self._late = self._late, None
        if step is not None and self._copy is not None:
            self._copied.synchronize()
            self.value = self._checked(float(self._copy), step)
        return self.value

    def _checked(self, loss: float, step: int) -> float | None:
        """Return the loss; the last one instead, where this one overflowed under a scaler."""
        if math.isfinite(loss):
            return loss
        worker = self._worker
        if worker.scaling.scale > 1.0:
            return self.value
        sent = "nothing of this step was sent" if step == worker.steps else "found a step later, since it is on a GPU"
        raise NonFiniteLoss(
            f"loss is {loss} at step {step} of worker {worker.rank}{_culprit(worker.model)}: {sent}. "
            "Try a smaller learning rate, gradient clipping (worker.step(loss, clip_norm=1.0)), or look at the data"
        )


def check_gradient(loss: Any) -> None:
    """Refuse a loss that no backward pass can begin at."""
    if not isinstance(loss, torch.Tensor):
        given = f"step({loss!r})" if isinstance(loss, float | int) else f"step({type(loss).__name__})"
        remedy = "give it without .item(); in a loop of your own, worker.exchange(loss) takes numbers"
        raise Misuse(given, "the loss as a tensor, whose gradients are taken", remedy)
    if loss.numel() != 1:
        raise Misuse(f"step(loss of shape {tuple(loss.shape)})", "a loss of one element", "give loss.mean()")
    if not loss.requires_grad:
        raise Misuse(
            "step(loss without gradients)",
            "a loss that was computed from the model's parameters",
            "leave out .detach() and torch.no_grad()",
        )


def check_clip(norm: Any) -> None:
    """Refuse what gradients cannot be clipped to. None: they are not clipped."""
    try:
        right = norm is None or float(norm) > 0.0
    except (TypeError, ValueError):
        right = False
    if not right:
        raise Misuse(f"clip_norm={norm!r}", "a number above 0", "such as 1.0; or leave it out")


def warn_unreached(parameters: Sequence[torch.Tensor]) -> None:
    """Warn where backward has reached none of the joined parameters."""
    if all(parameter.grad is None for parameter in parameters):
        log.warning("the loss does not depend on the model that was joined: was another model made since?")


def _culprit(model: nn.Module) -> str:
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter.detach()).all()):
            return f" (parameter {name!r} has weights that are NaN or infinite: its last gradient was)"
    return ""


def needs_closure(optimizer: torch.optim.Optimizer) -> Misuse:
    """Return the error for an optimizer whose step cannot be made by ``worker.step``."""
    return Misuse(
        f"{type(optimizer).__name__} in worker.step",
        "an optimizer whose step needs no closure",
        "call optimizer.step(closure) yourself, then worker.exchange(loss)",
    )

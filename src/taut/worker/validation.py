"""What the script knows about its model's worth: a validation function, and data to recalibrate batch norm with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from taut.errors import FinishFailed, Misuse
from taut.optim import recalibrate
from taut.optim.recalibration import input_of, is_recalibrated

if TYPE_CHECKING:
    from taut.worker.joining.island_member import IslandMember

Better = Literal["higher", "lower"]


@dataclass
class Validation:
    """``validate(model)`` gives a number, of which the ``better`` one is better; ``recalibrate`` is training batches or a
    function without arguments that gives them. Either may be None. What they raise is kept in ``failures``: it must not
    cost the run its model.

    >>> given = Validation(lambda model: float(model(torch.ones(1, 2)).sum()))
    >>> layer = torch.nn.Linear(2, 1); _ = layer.weight.data.fill_(3.0); _ = layer.bias.data.zero_()
    >>> given.score(layer), layer.training, Validation().score(layer)
    (6.0, True, None)
    """

    validate: Callable[[Any], Any] | None = None
    better: Better = "higher"
    recalibrate: Iterable[Any] | Callable[[], Iterable[Any]] | None = None
    failures: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.validate is not None and not callable(self.validate):
            raise Misuse(f"join(validate={self.validate!r})", "a function that takes the model and gives a number")
        if self.better not in ("higher", "lower"):
            raise Misuse(f"join(better={self.better!r})", "'higher' or 'lower'", "'lower' for a loss")
        if self.recalibrate is not None and not callable(self.recalibrate) and not isinstance(self.recalibrate, Iterable):
            raise Misuse(
                f"join(recalibrate={self.recalibrate!r})",
                "training batches, or a function that gives them",
                "a DataLoader will do",
            )

    @property
    def given(self) -> bool:
        """Return whether the script gives either."""
        return self.validate is not None or self.recalibrate is not None

    def score(self, model: nn.Module) -> float | None:
        """Return what ``validate`` says, in evaluation mode and without gradients; None without one, or if it raised."""
        if self.validate is None:
            return None
        with self._watched(f"validate ({_named(self.validate)})"), _evaluating(model), torch.no_grad():
            value = self.validate(model)
            try:
                return float(value)
            except (TypeError, ValueError):
                raise TypeError(f"it returned {value!r:.100}: expected a number") from None
        return None

    def recalibrated(self, model: nn.Module, member: IslandMember | None = None) -> bool:
        """Compute the batch-norm statistics anew, if that was asked for; return whether they changed. ``member``: this
        process in its island, all of whose processes do so now."""
        if self.recalibrate is None:
            return False
        with self._watched("recalibrate"):
            batches = self.recalibrate() if callable(self.recalibrate) else self.recalibrate
            if member is not None:
                return _recalibrated_together(model, batches, member)
            return recalibrate(model, batches) > 0
        return False

    def raise_failure(self) -> None:
        """Raise what the functions raised, now that the model is safe."""
        if self.failures:
            raise FinishFailed(f"{self.note()} (the model was kept)") from self.failures[0]

    def note(self) -> str:
        """Return what went wrong first, in a line; empty if nothing did."""
        if not self.failures:
            return ""
        first = self.failures[0]
        return f"{self._blamed} raised {type(first).__name__}: {first}"[:2000]

    @contextmanager
    def _watched(self, who: str) -> Iterator[None]:
        """Keep what a user's function raises: only the score is lost by it."""
        try:
            yield
        except Exception as error:
            if not self.failures:
                self._blamed = who
            self.failures.append(error)


def _recalibrated_together(model: nn.Module, batches: Iterable[Any], member: IslandMember) -> bool:
    """Recalibrate a model that is cut: a process without batch norm in its part computes that part for the others."""
    has = is_recalibrated(model)
    if not member.agree(float(has)):
        return False
    given = member.same_batches(input_of(batch) for batch in batches)
    if has:
        recalibrate(model, given)
    else:
        with _evaluating(model), torch.no_grad():
            for batch in given:
                model(batch)
    return True


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _named(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", type(function).__name__)
    code = getattr(function, "__code__", None)
    return name if code is None else f"{name}, line {code.co_firstlineno} of {code.co_filename}"

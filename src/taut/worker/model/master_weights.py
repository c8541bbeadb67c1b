"""Master weights: parameters of half precision follow their part of the flat float32 vector.

The vector is the truth: the optimizer moves it, codecs and strategies see it, checkpoints hold it. A bfloat16 or float16
parameter has memory of its own for forward and backward, rounded from the vector after each step and each merge. The
``Parameter`` object stays the script's:

- its gradient is accumulated in float32 (``grad_dtype``);
- during the optimizer's step its data is its part of the vector (``lift``), so the optimizer's state is float32, too;
- where the script changes it by hand, the elements that changed are taken over by the vector (``take_changes``).

Micikevicius et al. 2018, "Mixed precision training".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import nn

from taut.codecs.math.stochastic_rounding import round_stochastically
from taut.errors import Misuse
from taut.worker.model.model_checks import HALVES, WeightSample
from taut.worker.optimizer.joined import Optimizer, members_of

Rounding = Literal["nearest", "stochastic"]


class _Follower(NamedTuple):
    """A parameter with its own memory and its part of the vector."""

    parameter: nn.Parameter
    own: torch.Tensor
    master: torch.Tensor


class _Stretch(NamedTuple):
    """Neighbouring parameters of one type, as flat vectors: ``first`` is the index of the first element."""

    own: torch.Tensor
    master: torch.Tensor
    first: int


class MasterWeights:
    """Of the parameters in ``views``, each with its part of ``vector``, those of half precision. ``stale``: the vector
    has moved since they were rounded; ``seed``: of stochastic rounding.

    >>> layer = nn.Linear(2, 1, bias=False).bfloat16()
    >>> vector = torch.tensor([1.001, 0.5])
    >>> masters = MasterWeights(vector, [(layer.weight, vector.view(1, 2))])
    >>> masters.stale = True; masters.refresh(); layer.weight.tolist()
    [[1.0, 0.5]]
    """

    def __init__(
        self, vector: torch.Tensor, views: Iterable[tuple[nn.Parameter, torch.Tensor]], rounding: Rounding = "nearest"
    ) -> None:
        self.rounding, self.seed = rounding, 0
        self.stale = self.lifted = False
        self._followers: list[_Follower] = []
        self._stretches: list[_Stretch] = []
        self._hooks: list[list[Any]] = []
        first = 0
        for dtype, group in groupby(views, lambda each: each[0].dtype):
            pairs = list(group)
            size = sum(view.numel() for _, view in pairs)
            if dtype in HALVES:
                self._follow(pairs, _Stretch(vector.new_empty(size, dtype=dtype), vector[first : first + size], first))
            first += size
        self._samples = [WeightSample(_comparable(each.own)) for each in self._stretches]
        self._note()

    def _follow(self, pairs: list[tuple[nn.Parameter, torch.Tensor]], stretch: _Stretch) -> None:
        offset = 0
        for parameter, view in pairs:
            own = stretch.own[offset : offset + view.numel()].as_strided(view.shape, view.stride())
            own.copy_(parameter.detach())
            parameter.data = own
            gradient, parameter.grad = parameter.grad, None
            parameter.grad_dtype = torch.float32
            parameter.grad = None if gradient is None else gradient.float()
            self._followers.append(_Follower(parameter, own, view))
            offset += view.numel()
        self._stretches.append(stretch)

    def _note(self) -> None:
        self._versions = [each.parameter._version for each in self._followers]
        for sample in self._samples:
            sample.renew()

    def refresh(self) -> None:
        """Round the parameters from the vector, if it has moved."""
        if not self.stale or self.lifted:
            return
        for stretch in self._stretches:
            self._round(stretch, stretch.own)
        self._note()
        self.stale = False

    def _round(self, stretch: _Stretch, target: torch.Tensor) -> None:
        if self.rounding == "nearest":
            target.copy_(stretch.master)
        else:
            round_stochastically(stretch.master, target, self.seed, stretch.first)

    def take_changes(self) -> None:
        """Write to the vector what the script has changed in the parameters since they were rounded."""
        if not self._followers or self.lifted or self.stale:
            return
        versions = [each.parameter._version for each in self._followers]
        if versions == self._versions and not any(sample.moved() for sample in self._samples):
            return
        for stretch in self._stretches:
            rounded = torch.empty_like(stretch.own)
            self._round(stretch, rounded)
            stretch.master.copy_(torch.where(stretch.own == rounded, stretch.master, stretch.own.float()))
        self._note()

    def lift(self) -> None:
        """Make the parameters their parts of the vector: float32, for the optimizer to move."""
        if self._followers and not self.lifted:
            self.take_changes()
            for each in self._followers:
                each.parameter.data = each.master
            self.lifted = True

    def lower(self) -> None:
        """Make the parameters their own memory again, rounded from the vector."""
        if self.lifted:
            for each in self._followers:
                each.parameter.data = each.own
            self.lifted, self.stale = False, True
            self.refresh()

    @contextmanager
    def as_vector(self) -> Iterator[None]:
        """Lift the parameters within the block."""
        self.lift()
        try:
            yield
        finally:
            self.lower()

    # ------------------------------------------------------------------------------------------- the optimizers

    def attach(self, optimizer: Optimizer) -> None:
        """Lift the parameters in each step of ``optimizer`` from now on, and while it loads its state."""
        for member in members_of(optimizer) if self._followers else ():
            for each in self._followers:
                state = member.state.get(each.parameter, {})
                state.update({name: value.float() for name, value in state.items() if _is_half(value)})
            after = [member.register_step_post_hook(lambda *_: self.lower())]
            before = member.register_step_pre_hook(self._before(after))
            loading = member.register_load_state_dict_pre_hook(lambda *_: self.lift())
            loaded = member.register_load_state_dict_post_hook(lambda *_: self.lower())
            self._hooks += [after, [before], [loading], [loaded]]

    def close(self) -> None:
        """Let go of the optimizers; the parameters are rounded from the vector."""
        self.lower()
        self.refresh()
        for handles in self._hooks:
            handles[0].remove()
        self._hooks.clear()

    def _before(self, after: list[Any]) -> Callable[..., Any]:
        def before(optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
            after[0].remove()  # again, so that it comes after hooks of the script, which may move weights
            after[0] = optimizer.register_step_post_hook(lambda *_: self.lower())
            closure = args[1] if len(args) > 1 else kwargs.get("closure")
            self.lift()
            return None if closure is None else ((optimizer,), {"closure": self._rounded(closure)})

        return before

    def _rounded(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return the closure, which computes with the rounded parameters."""

        def evaluate() -> Any:
            self.lower()
            loss = closure()
            self.lift()
            return loss

        return evaluate


def check_rounding(rounding: str) -> None:
    """Raise ``Misuse`` unless ``rounding`` is a known one."""
    if rounding not in get_args(Rounding):
        raise Misuse(f"join(rounding={rounding!r})", " or ".join(repr(each) for each in get_args(Rounding)))


def _is_half(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in HALVES


def _comparable(own: torch.Tensor) -> Any:
    """Return the bits of a vector, as ``WeightSample`` takes them: NumPy has no bfloat16."""
    bits = own.view(torch.int16)
    return bits if bits.is_cuda else bits.numpy()

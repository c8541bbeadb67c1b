"""The optimizers that a script gives to ``taut.join``: one, or a list that is then seen as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch

Optimizer = torch.optim.Optimizer


def joined(given: Any) -> Optimizer:
    """Return the optimizer in ``given``: without the wrapper that a library put around it, several as one.

    >>> layer = torch.nn.Linear(2, 1)
    >>> one, other = torch.optim.SGD([layer.weight], lr=0.1), torch.optim.Adam([layer.bias], lr=0.2)
    >>> [group["lr"] for group in joined([one, other]).param_groups]
    [0.1, 0.2]
    >>> joined([one]) is joined(one) is one
    True
    """
    members = [_unwrapped(each) for each in given] if isinstance(given, list | tuple) else [_unwrapped(given)]
    return members[0] if len(members) == 1 else JoinedOptimizers(members)


def members_of(optimizer: Optimizer) -> Sequence[Optimizer]:
    """Return the optimizers that ``joined`` made one of."""
    return optimizer.members if isinstance(optimizer, JoinedOptimizers) else [optimizer]


def parameters_of(optimizer: Optimizer) -> list[torch.nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def takes_sparse(optimizer: Optimizer) -> list[int]:
    """Return the numbers of those of the joined optimizers that take no gradients but sparse ones.

    >>> table = torch.nn.Embedding(2, 1, sparse=True)
    >>> takes_sparse(torch.optim.SparseAdam(table.parameters())), takes_sparse(torch.optim.SGD(table.parameters()))
    ([0], [])
    """
    return [number for number, one in enumerate(members_of(optimizer)) if isinstance(one, torch.optim.SparseAdam)]


def _unwrapped(optimizer: Any) -> Any:
    """Return the optimizer inside of wrappers that keep it as ``.optimizer`` (accelerate, Lightning)."""
    while isinstance(getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = optimizer.optimizer
    return optimizer


class JoinedOptimizers(Optimizer):
    """Several optimizers with one list of parameter groups and one state, in the order in which they were given.

    Their ``state_dict`` has the form of a single optimizer's, so that checkpoints and newcomers need not know.

    >>> layer = torch.nn.Linear(2, 1)
    >>> both = JoinedOptimizers([torch.optim.Adam([each], lr=0.1) for each in layer.parameters()])
    >>> layer(torch.ones(1, 2)).sum().backward(); both.step()
    >>> kept = both.state_dict(); both.load_state_dict(kept)
    >>> sorted(kept["state"]), [group["params"] for group in kept["param_groups"]], len(both.state)
    ([0, 1], [[0], [1]], 2)
    """

    def __init__(self, members: Sequence[Optimizer]) -> None:  # without that of Optimizer, which wants parameters
        self.members = members

    def __repr__(self) -> str:
        return f"JoinedOptimizers({self.members!r})"

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return [group for member in self.members for group in member.param_groups]

    @property
    def state(self) -> dict[torch.Tensor, Any]:  # type: ignore[override]
        """Return a copy of the members' mappings: changes of it are lost."""
        return {key: value for member in self.members for key, value in member.state.items()}

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "worker.step gives none"
        for member in self.members:
            member.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for member in self.members:
            member.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        state: dict[int, Any] = {}
        groups: list[dict[str, Any]] = []
        for first, member in zip(self._firsts(), self.members, strict=False):
            kept = member.state_dict()
            state.update((first + number, value) for number, value in kept["state"].items())
            groups += [{**group, "params": [first + at for at in group["params"]]} for group in kept["param_groups"]]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        groups, taken = state_dict["param_groups"], 0
        if len(groups) != len(self.param_groups):
            raise ValueError(f"{len(groups)} parameter groups, where the optimizers have {len(self.param_groups)}")
        for (first, end), member in zip(pairwise(self._firsts()), self.members, strict=True):
            own = groups[taken : taken + len(member.param_groups)]
            taken += len(own)
            state = {at: value for at, value in state_dict["state"].items() if first <= at < end}
            member.load_state_dict({"state": state, "param_groups": own})

    def _firsts(self) -> list[int]:
        """Return the number of each member's first parameter, and how many there are."""
        sizes = [sum(len(group["params"]) for group in member.param_groups) for member in self.members]
        return list(accumulate(sizes, initial=0))

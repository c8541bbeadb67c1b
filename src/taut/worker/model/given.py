"""What a script gives to ``taut.join`` as model and optimizer, seen as one module and one optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from taut.errors import Misuse
from taut.worker.model.hand_made import HandMadeUpdate
from taut.worker.optimizer.joined import joined, parameters_of


def module_of(model: Any) -> nn.Module:
    """Return the module to join: several in a list, a tuple or a dictionary as one; of one that ``torch.compile`` made,
    the module inside, which has the same parameters, under the names that it has without compiling.

    >>> layers = [nn.Linear(2, 1), nn.Linear(1, 2)]
    >>> module_of(layers[0]) is layers[0], [name for name, _ in module_of(layers).named_parameters()]
    (True, ['0.weight', '0.bias', '1.weight', '1.bias'])
    >>> [name for name, _ in module_of({"generator": layers[0]}).named_parameters()]
    ['generator.weight', 'generator.bias']
    """
    if isinstance(model, Mapping) and _are_modules(model.values()):
        return nn.ModuleDict({str(name): module_of(each) for name, each in model.items()})
    if isinstance(model, list | tuple) and _are_modules(model):
        return nn.ModuleList([module_of(each) for each in model])
    if not hasattr(model, "named_parameters"):
        raise Misuse(
            f"join({type(model).__name__}, ...)",
            "a torch.nn.Module (or several in a list or a dictionary), then its torch.optim.Optimizer",
            "for an array and any other framework: taut.join_vector(array)",
        )
    inside = getattr(model, "_orig_mod", model)
    return inside if isinstance(inside, nn.Module) else model


def _are_modules(given: Any) -> bool:
    return bool(given) and all(isinstance(each, nn.Module) for each in given)


def optimizer_of(model: nn.Module, optimizer: Any) -> torch.optim.Optimizer:
    """Return the optimizer to join: several in a list or a dictionary as one; a function, which updates the parameters
    that no optimizer beside it has, as one; None: the script's loop moves the weights itself."""
    given = list(optimizer.values()) if isinstance(optimizer, Mapping) else optimizer
    given = list(given) if isinstance(given, list | tuple) else [given]
    made = [one for one in given if hasattr(one, "param_groups")]
    functions = [one for one in given if not hasattr(one, "param_groups")]
    by_hand = len(functions) == 1 and (callable(functions[0]) or (functions[0] is None and not made))
    if not given or (functions and not by_hand):
        names = ", ".join(type(one).__name__ for one in given) or "no optimizer"
        raise Misuse(
            f"join({type(model).__name__}, {names})",
            "a torch.optim.Optimizer, a list of them, or a function that updates the weights",
            "for example taut.join(model, torch.optim.SGD(model.parameters(), lr=0.1))",
        )
    if by_hand:
        owned = {id(each) for one in made for each in parameters_of(joined(one))}
        rest = [each for each in model.parameters() if id(each) not in owned and each.requires_grad]
        if not rest:
            raise Misuse("a function that updates weights, and none left for it", "parameters that no optimizer has")
        made.append(HandMadeUpdate(rest, functions[0]))
    return joined(made)

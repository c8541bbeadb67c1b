"""The optimizer's moments as one vector: replicas that must take the same steps must share these, too."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch

from taut.worker.optimizer.joined import members_of, parameters_of, takes_sparse
from taut.worker.standalone.worker import Vector


class Moments:
    """All tensors in the optimizer's state (momentum, Adam's averages, step counts), in the order of the parameters.

    >>> layer = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    >>> layer(torch.ones(1, 2)).sum().backward(); optimizer.step()
    >>> moments = Moments(optimizer); moments.gather().tolist()
    [1.0, 1.0, 1.0]
    >>> moments.scatter(np.zeros(3, np.float32)); Moments(optimizer).gather().tolist()
    [0.0, 0.0, 0.0]
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.tensors: list[Any] = [
            value
            for parameter in parameters_of(optimizer)
            for _, value in sorted(optimizer.state.get(parameter, {}).items())
            if isinstance(value, torch.Tensor)
        ]

    def gather(self) -> Vector:
        parts = [tensor.detach().float().cpu().numpy().ravel() for tensor in self.tensors]
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)

    def scatter(self, vector: Vector) -> None:
        offset = 0
        for tensor in self.tensors:
            part = torch.from_numpy(np.array(vector[offset : offset + tensor.numel()])).view(tensor.shape)
            if tensor.numel() == 1 and not tensor.ndim:
                part = part.round()  # a count of steps: the same whole number everywhere
            with torch.no_grad():
                tensor.copy_(part)
            offset += tensor.numel()


def begin_moments(optimizer: torch.optim.Optimizer) -> None:
    """Make zeros for the state that the first step would make, if no step was made yet: a worker that came when no data
    was left has as many moments to average as the others. A step of a copy, without gradients, shows which they are.

    >>> layer = torch.nn.Linear(2, 1)
    >>> optimizer = torch.optim.Adam(layer.parameters())
    >>> begin_moments(optimizer); Moments(optimizer).gather().tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    for member in members_of(optimizer) if not optimizer.state else ():
        _begin(member)


def _begin(optimizer: torch.optim.Optimizer) -> None:
    trial = copy.deepcopy(optimizer)  # without hooks, on parameters of its own
    for parameter in parameters_of(trial):
        zeros = torch.zeros_like(parameter) if parameter.requires_grad else None
        parameter.grad = zeros.to_sparse(1) if zeros is not None and takes_sparse(optimizer) else zeros
    trial.step()
    for mine, tried in zip(parameters_of(optimizer), parameters_of(trial), strict=True):
        made = trial.state.get(tried, {}).items()
        fresh = {name: torch.zeros_like(value) if isinstance(value, torch.Tensor) else value for name, value in made}
        if fresh:
            optimizer.state[mine] = fresh

"""What a method sees of a torch worker: its weights, or its gradients, as one float32 vector in host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from taut.worker.arena import Arena
from taut.worker.iteration import Vector
from taut.worker.replica import Replica

if TYPE_CHECKING:
    import torch


class Weights:
    """The arena itself on the CPU; on a GPU a copy, fetched before a turn and put back after it."""

    def __init__(self, replica: Replica) -> None:
        self.replica, self.arena = replica, replica.arena
        on_host = isinstance(self.arena.vector, np.ndarray)
        self.x: Vector = self.arena.vector if on_host else self.arena.host(self.arena.vector).copy()
        self._on_host = on_host

    def fetch(self) -> None:
        if not self._on_host:
            self.x[:] = self.arena.host(self.arena.vector)

    def put_back(self) -> None:
        if not self._on_host:
            import torch

            self.arena.vector.copy_(torch.from_numpy(self.x))

    def emit(self) -> bytes | None:
        return self.replica.emit()

    def absorb(self, payload: bytes) -> None:
        self.replica.absorb(payload, -1)


class Gradients:
    """The parameters' gradients in the arena's order. Parameters without one count as zero; those that no worker has a
    gradient for keep none, so that the optimizer passes over them as it would alone."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.x: Vector = np.zeros(arena.size, np.float32)

    def fetch(self) -> None:
        """Copy the gradients here."""
        offset = 0
        for parameter, size in zip(self.arena.parameters, self.arena.sizes, strict=True):
            part = self.x[offset : offset + size]
            gradient = parameter.grad
            if gradient is None:
                part[:] = 0.0
            else:
                _view(part, parameter).copy_(gradient.to_dense() if gradient.is_sparse else gradient)
            offset += size

    def put_back(self) -> None:
        """Copy what is here into the gradients."""
        import torch

        offset = 0
        for parameter, size in zip(self.arena.parameters, self.arena.sizes, strict=True):
            part = self.x[offset : offset + size]
            offset += size
            if parameter.grad is None:
                if not part.any():
                    continue
                parameter.grad = torch.empty_like(parameter)
            elif parameter.grad.is_sparse:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(_view(part, parameter))

    def clear(self) -> None:
        """No samples: no gradient."""
        self.x[:] = 0.0

    def emit(self) -> bytes | None:
        raise AssertionError("gradients are reduced, not emitted")

    def absorb(self, payload: bytes) -> None:
        raise AssertionError("gradients are reduced, not absorbed")


def _view(part: Any, parameter: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.from_numpy(part).view(parameter.shape)

"""The mean of what several clients make of the same weights, one after the other on one worker.

    mean = sum_k n_k x_k / sum_k n_k        n_k: the samples that client k was trained on

``clip`` shortens how far a client has moved the weights, before that (``client_updates.py``). The mean is summed in
float64. The weights of a single client are the mean themselves, bit by bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from taut.worker.clients.client_updates import clip_update


class ClientMean:
    """``weights`` and ``buffers``: what clients move in place, now with the values from which each of them begins.

    >>> x = torch.zeros(2)
    >>> mean = ClientMean([x])
    >>> for samples, moved in ((1, 3.0), (2, 6.0)):
    ...     mean.restart(); x += moved; mean.add(samples)
    >>> mean.write(), x.tolist()
    (3, [5.0, 5.0])
    """

    def __init__(
        self, weights: Sequence[torch.Tensor], buffers: Sequence[torch.Tensor] = (), clip: float = math.inf
    ) -> None:
        self._weights, self._tensors, self._clip = weights, [*weights, *buffers], clip
        self._start = [tensor.detach().clone() for tensor in self._tensors]
        self._first: list[torch.Tensor] = []  # as the first client left them
        self._sums: list[torch.Tensor] = []  # from the second client on
        self.weight = 0

    @torch.no_grad()
    def restart(self) -> None:
        """Give all tensors the values from which a client begins."""
        for tensor, start in zip(self._tensors, self._start, strict=True):
            tensor.copy_(start)

    @torch.no_grad()
    def add(self, samples: int) -> None:
        """Add what a client, trained on so many samples, has made of the tensors."""
        if self._clip < math.inf:
            clip_update(self._weights, self._start[: len(self._weights)], self._clip)
        if not self.weight:
            self._first = [tensor.detach().clone() for tensor in self._tensors]
        else:
            if not self._sums:
                self._sums = [first.double() * self.weight for first in self._first]
            for total, tensor in zip(self._sums, self._tensors, strict=True):
                total.add_(tensor, alpha=samples)
        self.weight += samples

    @torch.no_grad()
    def write(self) -> int:
        """Write the mean into the tensors; return its weight. Without a client they get the first values."""
        self.restart()
        mean = [total / self.weight for total in self._sums] or self._first
        for tensor, value in zip(self._tensors, mean, strict=bool(mean)):
            tensor.copy_(value)
        return self.weight

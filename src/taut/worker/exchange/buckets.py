"""Watching backward: which buckets of gradients are complete, while it still works on the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from taut.errors import Misuse

if TYPE_CHECKING:
    import torch


class GradientBuckets:
    """Calls ``full(bucket)`` during backward, as soon as all parameters of a bucket have their gradient.

    ``bounds``: of each bucket, its first parameter and one after its last. Only backward passes that were announced by
    ``arm`` count: gradients may be accumulated over several, and only the last one completes them. Parameters that take
    no part in the loss get no gradient, and their bucket is never full: the caller sends what is left at its own step.

    >>> import torch
    >>> layers = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    >>> watch, seen = GradientBuckets(list(layers.parameters()), [(2, 4), (0, 2)], lambda bucket: seen.append(bucket)), []
    >>> layers(torch.ones(1, 2)).sum().backward(); seen
    []
    >>> watch.arm(); layers(torch.ones(1, 2)).sum().backward(); seen
    [0, 1]
    """

    def __init__(
        self, parameters: Sequence[torch.Tensor], bounds: Sequence[tuple[int, int]], full: Callable[[int], None]
    ) -> None:
        self._bounds, self._full = bounds, full
        self._bucket_of = {number: bucket for bucket, (lo, hi) in enumerate(bounds) for number in range(lo, hi)}
        self._left: list[int] = []
        self._armed = False
        hooks: list[Any] = [parameter.register_post_accumulate_grad_hook for parameter in parameters]
        self._handles = [register(self._hook(number)) for number, register in enumerate(hooks)]

    def arm(self) -> None:
        """Watch the next backward, the last before the step."""
        self._left = [hi - lo for lo, hi in self._bounds]
        self._armed = True

    def disarm(self) -> None:
        self._armed = False

    def close(self) -> None:
        """Let go of the parameters."""
        for handle in self._handles:
            handle.remove()

    def _hook(self, number: int) -> Callable[[torch.Tensor], None]:
        bucket = self._bucket_of[number]

        def accumulated(parameter: torch.Tensor) -> None:
            if not self._armed:
                return
            self._left[bucket] -= 1
            if self._left[bucket] == 0:
                self._full(bucket)
            elif self._left[bucket] < 0:
                raise Misuse(
                    "a parameter that got its gradient in several parts during one backward",
                    "one part, since the first was sent already",
                    "use non-reentrant checkpointing, or --strategy sync:bucket_mib=0",
                )

        return accumulated

"""One server's part of the weights: what workers push is added, what they pull is a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from taut.strategies.staleness import Lateness, Remedy

if TYPE_CHECKING:
    from taut.strategies.method import Vector


def bounds(shard: int, shards: int, size: int) -> slice:
    """The elements of a shard.

    >>> [bounds(shard, 3, 10) for shard in range(3)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 10, None)]
    """
    return slice(shard * size // shards, (shard + 1) * size // shards)


def holder(shard: int, shards: int, members: Sequence[int]) -> int:
    """Who holds it: of the workers whose rank is ``shard`` modulo ``shards``, the lowest that is there; if none is, the
    lowest of all. So at the start the first workers hold one each; when one goes, only its shard moves; and a newcomer,
    whose rank is higher, takes nothing from anybody who is entitled to it.

    >>> holder(1, 2, (0, 1, 2, 3)), holder(1, 2, (0, 2, 3)), holder(1, 2, (0, 2))
    (1, 3, 0)
    """
    return min((rank for rank in members if rank % shards == shard), default=members[0])


@dataclass
class Shard:
    """``version`` counts pushes, ``own`` those of each worker; ``seen`` is both at each worker's last pull, and ``then``
    the weights that it got (kept only where they are needed)."""

    w: Vector
    remedy: Remedy
    version: int = 0
    own: dict[int, int] = field(default_factory=dict)
    seen: dict[int, tuple[int, int]] = field(default_factory=dict)
    then: dict[int, Vector] = field(default_factory=dict)
    staleness: float = 0.0  # of the pushes, smoothed

    def push(
        self, worker: int, change: Vector, workers: int, steps: int = 1, rate: float = 0.0, scale: float = 1.0
    ) -> None:
        """Add a worker's change, with what is to be done about its lateness."""
        version, own = self.seen.get(worker, (0, 0))
        others = (self.version - version) - (self.own.get(worker, 0) - own)
        late = Lateness(others, workers, steps, rate, self.then.get(worker))
        self.w += np.float32(scale) * self.remedy.apply(change, self.w, late)
        self.version += 1
        self.own[worker] = self.own.get(worker, 0) + 1
        self.staleness += 0.05 * (late.staleness - self.staleness)

    def pull(self, worker: int) -> bytes:
        """The weights as they are now."""
        self.seen[worker] = (self.version, self.own.get(worker, 0))
        copy = self.w.tobytes()
        if self.remedy.compensates:
            self.then[worker] = np.frombuffer(copy, np.float32)
        return copy

    def keep(self, members: Sequence[int]) -> None:
        """Forget who is gone."""
        for rank in set(self.own) | set(self.seen):
            if rank not in members:
                self.own.pop(rank, None), self.seen.pop(rank, None), self.then.pop(rank, None)

"""Where a worker of a method stands, and with whom: all who know the same members compute the same wiring."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from taut.topologies.graph import Graph
    from taut.topologies.shape import Shape


@lru_cache(maxsize=64)
def _wired(shape: Shape, members: tuple[int, ...], round: int) -> Graph:
    return shape.wire(members, round)


@dataclass(frozen=True)
class MemberPlace:
    """Where a worker stands: its rank, the members (sorted, itself among them) and the topology over them. Everybody who
    has the same ``version`` has the same members."""

    rank: int
    members: tuple[int, ...]
    shape: Shape
    version: int = 0

    def graph(self, round: int = 0) -> Graph:
        if self.shape.varies:
            return _wired(self.shape, self.members, round)
        return self._graph

    @cached_property
    def _graph(self) -> Graph:
        # Kept: to find it by the members costs their hash, at every step of each of thousands in a simulation.
        return _wired(self.shape, self.members, 0)

    def neighbours(self, round: int = 0) -> list[int]:
        return self.graph(round).neighbours(self.rank)

    @property
    def others(self) -> tuple[int, ...]:
        return tuple(rank for rank in self.members if rank != self.rank)

"""Two lines side by side, with rungs between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from taut.topologies.graph import Graph
from taut.topologies.shape import Shape, from_positions


@dataclass(frozen=True)
class Ladder(Shape):
    """``--topology ladder:rungs=no``: positions 0, 2, 4 ... and 1, 3, 5 ... are lines."""

    name: ClassVar[str] = "ladder"
    advised: ClassVar[str] = "ladder"

    rungs: bool = True

    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        size = len(set(members))
        rungs = [(position, position + 1) for position in range(0, size - 1, 2 if self.rungs else size)]
        return from_positions(members, [*rungs, *((position, position + 2) for position in range(size - 2))])

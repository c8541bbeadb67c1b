"""Balanced trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taut.errors import Misuse
from taut.topologies.graph import Graph
from taut.topologies.shape import Shape, from_positions


@dataclass(frozen=True)
class Tree(Shape):
    """A balanced tree, filled level by level like a heap: position s hangs from position (s - 1) // branching.

    n - 1 edges, the fewest that connect; a step up or down is on the way of many, so it mixes slowly but relays cheaply.
    It is a tree for any members, since each position but the first has one edge to a lower position.

    Arguments:
        branching: how many hang from each.

    >>> Tree(branching=3).wire(range(8)).neighbours(1)
    [0, 4, 5, 6]
    """

    name = "tree"
    branching: int = 2

    def __post_init__(self) -> None:
        if self.branching < 1:
            raise Misuse(f"tree: branching={self.branching}", "a whole number from 1", "2 makes a binary tree")

    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        return from_positions(
            members, [((position - 1) // self.branching, position) for position in range(1, len(set(members)))]
        )

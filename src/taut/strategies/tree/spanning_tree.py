"""The spanning tree along which a relay passes updates on, as one of its members sees it."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from taut.strategies.api import Membership
from taut.topologies.graph import breadth_first

if TYPE_CHECKING:
    from taut.topologies.shape import Shape


@dataclass(frozen=True)
class SpanningTree:
    """``key`` tells trees apart: workers that know the same members have the same tree and the same key.

    >>> from taut.topologies.registry import parse
    >>> tree = plant(Membership(1, (0, 1, 2, 3), parse("line")))
    >>> tree.neighbours, tree.parent, tree.children, tree.distance
    ((0, 2), 0, (2,), 1.3333333333333333)
    """

    key: int
    rank: int
    members: tuple[int, ...]
    neighbours: tuple[int, ...]
    parent: int | None  # towards the root, which is the lowest rank
    distance: float  # edges to another member, on average
    lists: Mapping[int, Sequence[int]] = field(default_factory=dict, compare=False, repr=False)  # by member: neighbours

    @property
    def root(self) -> int:
        return self.members[0]

    @property
    def children(self) -> tuple[int, ...]:
        return tuple(other for other in self.neighbours if other != self.parent)


def plant(membership: Membership) -> SpanningTree:
    """Return the tree: breadth first from the lowest rank, over the edges of all rounds if the shape varies."""
    rank, members = membership.rank, membership.members
    lists, parents = _tree(membership.shape, members)
    distances: dict[int, int] = {}
    for other, before in breadth_first(lists, rank).items():
        distances[other] = distances[before] + 1 if other != rank else 0
    mean = sum(distances.values()) / max(1, len(members) - 1)
    parent = parents[rank] if rank != members[0] else None
    return SpanningTree(tree_key(members), rank, members, tuple(lists[rank]), parent, mean, lists)


@lru_cache(maxsize=8)  # it is the same for all members: a simulation has thousands of them
def _tree(shape: Shape, members: tuple[int, ...]) -> tuple[Mapping[int, Sequence[int]], Mapping[int, int]]:
    """Return the neighbours of each member in the tree, and the parent of each."""
    lists = shape.union(members).spanning_tree().neighbour_lists
    return lists, breadth_first(lists, members[0])


def tree_key(members: Sequence[int]) -> int:
    """Return a number that tells trees with different members apart.

    >>> tree_key((0, 1, 2)) == tree_key((0, 1, 3))
    False
    """
    return zlib.crc32(",".join(map(str, members)).encode())


def towards(membership: Membership, goals: Collection[int]) -> int | None:
    """Return the neighbour in the tree that leads to the nearest of ``goals``; None if none of them is a member.

    >>> from taut.topologies.registry import parse
    >>> towards(Membership(2, (0, 1, 2, 3, 4), parse("line")), {0, 4}), towards(Membership(1, (0, 1, 2),
    ... parse("line")), {7})
    (1, None)
    """
    before = breadth_first(_tree(membership.shape, membership.members)[0], membership.rank)
    hop = next((rank for rank in before if rank in goals and rank != membership.rank), None)
    while hop is not None and before[hop] != membership.rank:
        hop = before[hop]
    return hop

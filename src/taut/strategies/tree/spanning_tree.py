"""The spanning tree along which a relay passes updates on, as one of its members sees it."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from taut.strategies.api import MemberPlace


@dataclass(frozen=True)
class SpanningTree:
    """``key`` tells trees apart: workers that know the same members have the same tree and the same key.

    >>> from taut.topologies.registry import parse
    >>> tree = plant(MemberPlace(1, (0, 1, 2, 3), parse("line")))
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


def plant(place: MemberPlace) -> SpanningTree:
    """Return the tree: breadth first from the lowest rank, over the edges of all rounds if the shape varies."""
    lists = place.shape.union(place.members).spanning_tree().neighbour_lists
    distances = {place.rank: 0}
    parent: dict[int, int] = {}
    for start, found in ((place.rank, distances), (place.members[0], None)):
        waiting = deque([start])
        seen = {start}
        while waiting:
            rank = waiting.popleft()
            for other in lists[rank]:
                if other not in seen:
                    seen.add(other)
                    waiting.append(other)
                    if found is None:
                        parent[other] = rank
                    else:
                        found[other] = found[rank] + 1
    mean = sum(distances.values()) / max(1, len(place.members) - 1)
    key = tree_key(place.members)
    return SpanningTree(key, place.rank, place.members, tuple(lists[place.rank]), parent.get(place.rank), mean, lists)


def tree_key(members: Sequence[int]) -> int:
    """Return a number that tells trees with different members apart.

    >>> tree_key((0, 1, 2)) == tree_key((0, 1, 3))
    False
    """
    return zlib.crc32(",".join(map(str, members)).encode())


def towards(place: MemberPlace, goals: Collection[int]) -> int | None:
    """Return the neighbour in the tree that leads to the nearest of ``goals``; None if none of them is a member.

    >>> from taut.topologies.registry import parse
    >>> towards(MemberPlace(2, (0, 1, 2, 3, 4), parse("line")), {0, 4}), towards(MemberPlace(1, (0, 1, 2),
    ... parse("line")), {7})
    (1, None)
    """
    lists = place.shape.union(place.members).spanning_tree().neighbour_lists
    waiting = deque((other, other) for other in lists[place.rank])
    seen = {place.rank, *lists[place.rank]}
    while waiting:
        rank, hop = waiting.popleft()
        if rank in goals:
            return hop
        fresh = [other for other in lists[rank] if other not in seen]
        seen.update(fresh)
        waiting.extend((other, hop) for other in fresh)
    return None

"""Any graph, written down edge by edge."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from taut.errors import Misuse
from taut.topologies.graph import Edge, Graph
from taut.topologies.paths import check_connected
from taut.topologies.shape import Shape

_EDGE = re.compile(r"\s*(\d{1,9})\s*(-|->|>)\s*(\d{1,9})\s*")


@dataclass(frozen=True)
class Edges(Shape):
    """The user's own graph: ``edges:0-1,1-2,2-0``, or with directions ``edges:0>1,1>2,2>0``.

    The ranks that the edges name are places. Members whose rank is a place have it; others take the places that are free,
    lowest first. Where places stay free, the graph is mended around them; where members are left over, each is put in the
    middle of the busiest edge (both rules, with their proofs: repair.py). So it is connected for any members, and depends
    on nothing else.

    >>> square = Edges(((0, 1), (1, 2), (2, 3), (3, 0)))
    >>> square.wire([0, 1, 3]).neighbours(1), square.wire([0, 1, 3, 4]).neighbours(4)
    ([0, 3], [1, 3])
    """

    name: ClassVar[str] = "edges"
    edges: tuple[Edge, ...]
    directed: bool = False

    def __post_init__(self) -> None:
        for a, b in self.edges:
            if a == b:
                raise Misuse(f"edge {a}-{b}", "two different workers", "leave it out")
            if min(a, b) < 0:
                raise Misuse(f"edge {a}-{b}", "ranks from 0")
        kept = {(a, b) if self.directed or a < b else (b, a) for a, b in self.edges}
        object.__setattr__(self, "edges", tuple(sorted(kept)))

    def wire(self, members: Sequence[int], round: int = 0) -> Graph:
        ranks = sorted(set(members))
        places = sorted({rank for edge in self.edges for rank in edge} | {0})
        named = set(places)
        strangers = [rank for rank in ranks if rank not in named]
        free = sorted(named - set(ranks))
        sits = dict(zip(free, strangers, strict=False))
        vacant = free[len(strangers) :]
        graph = Graph(tuple(places), frozenset(self.edges), self.directed).without(*vacant)
        taken = {place: sits.get(place, place) for place in graph.members}
        seated = Graph(tuple(taken.values()), frozenset((taken[a], taken[b]) for a, b in graph.edges), self.directed)
        for rank in strangers[len(free) :]:
            seated = seated.with_member(rank)
        return seated

    def check(self, workers: int) -> None:
        super().check(workers)
        for a, b in self.edges:
            if max(a, b) >= workers:
                raise Misuse(
                    f"edge {a}-{b} with {workers} workers",
                    f"ranks from 0 to {workers - 1}" if workers > 1 else "no edges",
                    f"start {max(max(edge) for edge in self.edges) + 1} workers, or leave the edge out",
                )
        check_connected(Graph(tuple(range(workers)), frozenset(self.edges), self.directed))


def read(text: str) -> Edges:
    """What stands after ``edges:``.

    >>> read("0-1, 1-2") == Edges(((0, 1), (1, 2))), read("0>1,1>0").directed
    (True, True)
    """
    found: list[Edge] = []
    kinds = set()
    for part in text.split(","):
        match = _EDGE.fullmatch(part)
        if not match:
            raise Misuse(
                f"edge {part.strip()!r}", "two ranks, such as 0-1, or 0>1 for one direction", "as in edges:0-1,1-2"
            )
        found.append((int(match[1]), int(match[3])))
        kinds.add(match[2] != "-")
    if len(kinds) > 1:
        raise Misuse("edges with and without a direction", "one kind", "write a-b as a>b,b>a")
    return Edges(tuple(found), directed=kinds == {True})

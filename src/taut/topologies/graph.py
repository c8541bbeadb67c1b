"""Graphs of workers, as values: the members, the edges between them, and paths along the edges."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from taut.errors import Misuse

if TYPE_CHECKING:
    import numpy as np

Edge = tuple[int, int]
# weights[i][j]: how much of j's vector goes into i's new one; i itself is among the j.
Weights = dict[int, dict[int, float]]


@dataclass(frozen=True)
class Graph:
    """The wiring at one moment. A pure value: leaving and joining give a new graph.

    Arguments:
        members: the ranks that take part, in any order; they need not be contiguous.
        edges: pairs of members. Of an undirected graph an edge is kept once, the lower rank first; of a directed
            one ``(a, b)`` says that a sends to b.
        directed: whether ``(a, b)`` and ``(b, a)`` differ.

    >>> ring = Graph((0, 1, 2, 5), {(0, 1), (1, 2), (2, 5), (5, 0)})
    >>> ring.neighbours(5), ring.without(1).neighbours(0), ring.diameter()
    ([0, 2], [2, 5], 2)
    """

    members: tuple[int, ...]
    edges: frozenset[Edge]
    directed: bool = False

    def __post_init__(self) -> None:
        members = tuple(sorted(set(self.members)))
        known = set(members)
        edges = set()
        for a, b in self.edges:
            if a == b:
                raise Misuse(f"an edge from worker {a} to itself", "two different workers", "leave it out")
            if a not in known or b not in known:
                stranger = b if a in known else a
                raise Misuse(f"edge {a}-{b}", f"members; {stranger} is none", f"the members are {_few(members)}")
            edges.add((a, b) if self.directed or a < b else (b, a))
        object.__setattr__(self, "members", members)
        object.__setattr__(self, "edges", frozenset(edges))

    # Worked out at the first question, then kept: a simulator asks for the neighbours of thousands again and again.
    @cached_property
    def outward_lists(self) -> dict[int, list[int]]:
        return self._lists(forward=True, back=not self.directed)

    @cached_property
    def mixing_rows(self) -> dict[tuple[str, int], dict[int, float]]:
        """Return the cache of ``mixing.row_of``, by kind and member."""
        return {}

    @cached_property
    def inward_lists(self) -> dict[int, list[int]]:
        return self._lists(forward=False, back=True) if self.directed else self.outward_lists

    @cached_property
    def neighbour_lists(self) -> dict[int, list[int]]:
        return self._lists(forward=True, back=True) if self.directed else self.outward_lists

    def _lists(self, forward: bool, back: bool) -> dict[int, list[int]]:
        found: dict[int, set[int]] = {rank: set() for rank in self.members}
        for a, b in self.edges:
            if forward:
                found[a].add(b)
            if back:
                found[b].add(a)
        return {rank: sorted(others) for rank, others in found.items()}

    def neighbours(self, rank: int) -> list[int]:
        """Return the members wired to ``rank``, in either direction, in rank order."""
        return list(self.neighbour_lists[self._member(rank)])

    def outward(self, rank: int) -> list[int]:
        """Return the members that ``rank`` sends to."""
        return list(self.outward_lists[self._member(rank)])

    def inward(self, rank: int) -> list[int]:
        """Return the members that send to ``rank``."""
        return list(self.inward_lists[self._member(rank)])

    def degree(self, rank: int) -> int:
        return len(self.neighbour_lists[self._member(rank)])

    def messages(self) -> int:
        """Return how many messages it takes until every member has heard each of its neighbours once."""
        return len(self.edges) * (1 if self.directed else 2)

    def is_connected(self) -> bool:
        """Return whether every member reaches every other: the first reaches all, and all reach the first."""
        if not self.members or len(breadth_first(self.outward_lists, self.members[0])) < len(self.members):
            return False
        return not self.directed or len(breadth_first(self.inward_lists, self.members[0])) == len(self.members)

    def parts(self) -> list[list[int]]:
        """Return the parts that the graph falls into when directions are ignored, sorted, and each in rank order.

        >>> Graph((0, 1, 2, 3), {(0, 2)}).parts()
        [[0, 2], [1], [3]]
        """
        found: list[list[int]] = []
        for rank in self.members:
            if not any(rank in part for part in found):
                found.append(sorted(breadth_first(self.neighbour_lists, rank)))
        return found

    def check_connected(self) -> None:
        """Raise ``Misuse`` for a graph that falls apart."""
        if not self.members:
            raise Misuse("a topology without workers", "at least one")
        if self.is_connected():
            return
        separate = self.parts()
        if len(separate) > 1:
            shown = ", ".join(str(part if len(part) <= 8 else [*part[:8], "..."]) for part in separate[:4])
            given = f"a topology in {len(separate)} parts: {shown}{' ...' if len(separate) > 4 else ''}"
            raise Misuse(given, "a connected one", f"add an edge between them, such as {separate[0][0]}-{separate[1][0]}")
        first = self.members[0]
        unreached = sorted(set(self.members) - breadth_first(self.outward_lists, first).keys())
        unheard = sorted(set(self.members) - breadth_first(self.inward_lists, first).keys())
        a, b = (first, unreached[0]) if unreached else (unheard[0], first)
        given = f"a directed topology where nothing from worker {a} reaches worker {b}"
        raise Misuse(given, "a strongly connected one", f"add the edge {a}>{b}, or use undirected edges (a-b)")

    def diameter(self) -> int:
        """Return the most steps between two members. All searches run at once, each a bit of a whole number.

        >>> Graph((0, 1, 2, 3), {(0, 1), (1, 2), (2, 3)}).diameter()
        3
        """
        self.check_connected()
        heard = {rank: 1 << index for index, rank in enumerate(self.members)}
        everybody, steps = (1 << len(self.members)) - 1, 0
        unfinished = list(self.members) if len(self.members) > 1 else []
        while unfinished:
            new = {}
            for rank in unfinished:
                all_heard = heard[rank]
                for other in self.inward_lists[rank]:
                    all_heard |= heard[other]
                new[rank] = all_heard
            heard.update(new)
            unfinished = [rank for rank in unfinished if heard[rank] != everybody]
            steps += 1
        return steps

    def spanning_tree(self, root: int | None = None) -> Graph:
        """Return the tree of a breadth-first search from ``root`` (by default the lowest rank), lower ranks first. Edges
        of a directed graph are taken both ways, as channels are.

        >>> sorted(Graph((0, 1, 2, 3), {(0, 1), (1, 2), (2, 3), (3, 0)}).spanning_tree(1).edges)
        [(0, 1), (0, 3), (1, 2)]
        """
        parent = breadth_first(self.neighbour_lists, self.members[0] if root is None else self._member(root))
        if len(parent) < len(self.members):
            self.check_connected()
        return Graph(self.members, frozenset((child, up) for child, up in parent.items() if child != up))

    def without(self, *ranks: int) -> Graph:
        """Return the graph that is left when these ranks have gone, mended so that it stays connected (see repair.py)."""
        from taut.topologies.repair import without

        return without(self, {self._member(rank) for rank in ranks})

    def with_member(self, rank: int) -> Graph:
        """Return the graph with one member more, in the middle of the busiest edge (see repair.py)."""
        from taut.topologies.repair import with_member

        if rank in self.neighbour_lists:
            raise Misuse(f"with_member({rank})", "a rank that is no member yet", f"the members are {_few(self.members)}")
        return with_member(self, rank)

    def weights(self, kind: str = "metropolis") -> Weights:
        """Return mixing weights: ``weights[i][j]`` is j's share in i's new vector (see mixing.py).

        >>> Graph((0, 1, 2), {(0, 1), (1, 2)}).weights()[0]
        {0: 0.6666666666666667, 1: 0.3333333333333333}
        """
        from taut.topologies.mixing import weights

        return weights(self, kind)

    def push_weights(self) -> Weights:
        """Return weights for push-sum: each member splits its vector evenly over itself and those it sends to."""
        from taut.topologies.mixing import push

        return push(self)

    def matrix(self, kind: str = "metropolis") -> np.ndarray:
        """Return the weights as an array, rows and columns in the order of ``members``."""
        from taut.topologies.mixing import matrix

        return matrix(self.members, self.push_weights() if kind == "push" else self.weights(kind))

    def spectral_gap(self, kind: str = "metropolis") -> float:
        """Return 1 - the second largest |eigenvalue| of the mixing matrix: the disagreement that a round removes.

        Dense linear algebra: the time grows with the cube of the number of members (2,000: seconds).
        """
        from taut.topologies.mixing import spectral_gap

        return spectral_gap(self.matrix(kind))

    def _member(self, rank: int) -> int:
        if rank not in self.neighbour_lists:
            raise Misuse(f"worker {rank}", "a member of this graph", f"the members are {_few(self.members)}")
        return rank


def _few(members: Sequence[int]) -> str:
    shown = ", ".join(map(str, members[:8]))
    return shown + (f" ... {members[-1]}" if len(members) > 8 else "")


def breadth_first(lists: Mapping[int, Sequence[int]], start: int) -> dict[int, int]:
    """Return all members that ``start`` reaches, the nearest first, each with the one before it (``start``: itself)."""
    before, waiting = {start: start}, deque([start])
    while waiting:
        rank = waiting.popleft()
        for other in lists[rank]:
            if other not in before:
                before[other] = rank
                waiting.append(other)
    return before

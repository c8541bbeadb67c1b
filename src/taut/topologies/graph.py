"""Who is wired to whom, as a value: the members, and the edges between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

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
        members: the ranks of those who take part, in any order; they need not be contiguous.
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
        """Return whether every member reaches every other, along the directions where edges have one."""
        from taut.topologies.paths import is_connected

        return is_connected(self)

    def check_connected(self) -> None:
        """Raise ``Misuse`` for a graph that falls apart."""
        from taut.topologies.paths import check_connected

        check_connected(self)

    def diameter(self) -> int:
        """Return the length of the longest of all shortest paths between two members."""
        from taut.topologies.paths import diameter

        return diameter(self)

    def spanning_tree(self, root: int | None = None) -> Graph:
        """Return the tree of shortest paths from ``root`` (by default the lowest rank), lower ranks first."""
        from taut.topologies.paths import spanning_tree

        return spanning_tree(self, self.members[0] if root is None else self._member(root))

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

    def weights(self, kind: str | Mapping[int, Mapping[int, float]] | Any = "metropolis") -> Weights:
        """Return mixing weights: ``weights[i][j]`` is j's share in i's new vector (see mixing.py).

        >>> Graph((0, 1, 2), {(0, 1), (1, 2)}).weights()[0]
        {0: 0.6666666666666667, 1: 0.3333333333333333}
        """
        from taut.topologies.mixing import weights

        return weights(self, kind)

    def push_weights(self) -> Weights:
        """Return column-stochastic weights for push-sum: each member splits its vector evenly over itself and those it
        sends to."""
        from taut.topologies.mixing import push

        return push(self)

    def matrix(self, kind: str | Any = "metropolis") -> np.ndarray:
        """Return the weights as an array, rows and columns in the order of ``members``."""
        from taut.topologies.mixing import matrix

        return matrix(self.members, self.push_weights() if kind == "push" else self.weights(kind))

    def spectral_gap(self, kind: str | Any = "metropolis") -> float:
        """Return 1 - the second largest |eigenvalue| of the mixing matrix: the share of disagreement that a round
        removes.

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

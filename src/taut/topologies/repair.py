"""The rules by which a graph of any form is mended when workers leave, and takes in a worker that joins.

**Leaving.** Take the workers that have left, and the groups in which they hang together. Around each group, its living
neighbours are wired in a ring in rank order (two of them: one edge).

*It stays connected.* Take two living workers and a way between them in the old graph. Where the way leaves the living,
it runs through leavers that are wired to each other, so through one group, and the living worker before that stretch and
the one after it are both neighbours of this group. The ring around the group connects them, so the stretch can be
replaced. In a directed graph the ring is one way round, from each to the next rank, and joins any two of the group's
neighbours in both directions; so a strongly connected graph stays strongly connected.

*Degrees stay small.* A worker loses at least one edge to each group it touches and gets at most two for it, so a degree
at most doubles, however many leave. Workers without a leaver for a neighbour keep their edges.

The rule takes all leavers at once, so it depends on the first graph and on the workers that are left, never on the order
in which the others went: two workers that learnt of the deaths in different orders wire the same graph.

**Joining.** The newcomer is put in the middle of the busiest edge: a - b becomes a - new - b. Busiest: the sum of the
degrees of its ends is the largest, and of several such edges the one with the lowest ranks. Every way that used the edge
goes through the newcomer now, which is itself reached from a and reaches b: the graph stays (strongly) connected. No old
degree changes, and since the newcomer's is 2, the next ones go elsewhere in any graph that has busier edges.
"""

from __future__ import annotations

from taut.topologies.graph import Edge, Graph


def ring_of(ranks: list[int], directed: bool = False) -> list[Edge]:
    """Return edges from each rank to the next, and from the last to the first; for two ranks one edge, for one none.

    >>> ring_of([1, 4, 6]), ring_of([1, 4]), ring_of([1, 4], directed=True), ring_of([1])
    ([(1, 4), (4, 6), (6, 1)], [(1, 4)], [(1, 4), (4, 1)], [])
    """
    if len(ranks) < 2:
        return []
    if len(ranks) == 2 and not directed:
        return [(ranks[0], ranks[1])]
    return list(zip(ranks, ranks[1:] + ranks[:1], strict=True))


def without(graph: Graph, gone: set[int]) -> Graph:
    """Return the graph without the members ``gone``, mended by the rule above.

    >>> star = Graph((0, 1, 2, 3), {(0, 1), (0, 2), (0, 3)})
    >>> sorted(without(star, {0}).edges)
    [(1, 2), (1, 3), (2, 3)]
    """
    living = [rank for rank in graph.members if rank not in gone]
    edges = {(a, b) for a, b in graph.edges if a not in gone and b not in gone}
    left = set(gone)
    while left:
        group, around = [left.pop()], set()
        while group:
            for other in graph.neighbour_lists[group.pop()]:
                if other in left:
                    left.discard(other)
                    group.append(other)
                elif other not in gone:
                    around.add(other)
        edges.update(ring_of(sorted(around), graph.directed))
    return Graph(tuple(living), frozenset(edges), graph.directed)


def with_member(graph: Graph, rank: int) -> Graph:
    """Return the graph with a newcomer in the middle of the busiest edge.

    >>> sorted(with_member(Graph((0, 1, 2), {(0, 1), (1, 2), (0, 2)}), 7).edges)
    [(0, 2), (0, 7), (1, 2), (1, 7)]
    """
    if not graph.edges:
        pairs = [(other, rank) for other in graph.members]
        both = pairs + [(b, a) for a, b in pairs] if graph.directed else pairs
        return Graph((*graph.members, rank), frozenset(both), graph.directed)
    degree = {each: len(others) for each, others in graph.neighbour_lists.items()}
    a, b = min(graph.edges, key=lambda edge: (-degree[edge[0]] - degree[edge[1]], edge))
    edges = (graph.edges - {(a, b)}) | {(a, rank), (rank, b)}
    return Graph((*graph.members, rank), edges, graph.directed)

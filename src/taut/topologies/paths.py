"""Ways through a graph: its parts, its diameter, a spanning tree."""

from __future__ import annotations

from collections import deque

from taut.errors import Misuse
from taut.topologies.graph import Graph


def reached(lists: dict[int, list[int]], start: int) -> set[int]:
    """Return all members that a path leads to from ``start``, itself included."""
    seen, waiting = {start}, [start]
    while waiting:
        for other in lists[waiting.pop()]:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return seen


def parts(graph: Graph) -> list[list[int]]:
    """Return the parts that a graph falls into when directions are ignored, each in rank order, by their lowest rank.

    >>> parts(Graph((0, 1, 2, 3), {(0, 2)}))
    [[0, 2], [1], [3]]
    """
    left, found = set(graph.members), []
    for rank in graph.members:
        if rank in left:
            part = reached(graph.neighbour_lists, rank)
            left -= part
            found.append(sorted(part))
    return found


def is_connected(graph: Graph) -> bool:
    """Return whether every member reaches every other, along the directions where edges have one: the first member
    reaches all, and all reach the first."""
    if not graph.members:
        return False
    first, everybody = graph.members[0], len(graph.members)
    if len(reached(graph.outward_lists, first)) < everybody:
        return False
    return not graph.directed or len(reached(graph.inward_lists, first)) == everybody


def check_connected(graph: Graph) -> None:
    if not graph.members:
        raise Misuse("a topology without workers", "at least one")
    if is_connected(graph):
        return
    separate = parts(graph)
    if len(separate) > 1:
        shown = ", ".join(str(part if len(part) <= 8 else [*part[:8], "..."]) for part in separate[:4])
        raise Misuse(
            f"a topology in {len(separate)} parts: {shown}{' ...' if len(separate) > 4 else ''}",
            "a connected one",
            f"add an edge between them, such as {separate[0][0]}-{separate[1][0]}",
        )
    first = graph.members[0]
    deaf = sorted(set(graph.members) - reached(graph.outward_lists, first))
    mute = sorted(set(graph.members) - reached(graph.inward_lists, first))
    a, b = (first, deaf[0]) if deaf else (mute[0], first)
    raise Misuse(
        f"a directed topology where nothing from worker {a} reaches worker {b}",
        "a strongly connected one",
        f"add the edge {a}>{b}, or use undirected edges (a-b)",
    )


def diameter(graph: Graph) -> int:
    """Return the most steps between two members. All searches run at once, each a bit of a whole number.

    >>> diameter(Graph((0, 1, 2, 3), {(0, 1), (1, 2), (2, 3)}))
    3
    """
    check_connected(graph)
    heard = {rank: 1 << index for index, rank in enumerate(graph.members)}
    everybody, steps = (1 << len(graph.members)) - 1, 0
    unfinished = list(graph.members) if len(graph.members) > 1 else []
    while unfinished:
        new = {}
        for rank in unfinished:
            all_heard = heard[rank]
            for other in graph.inward_lists[rank]:
                all_heard |= heard[other]
            new[rank] = all_heard
        heard.update(new)
        unfinished = [rank for rank in unfinished if heard[rank] != everybody]
        steps += 1
    return steps


def spanning_tree(graph: Graph, root: int) -> Graph:
    """Return the tree of a breadth-first search from ``root``, lower ranks first. Edges of a directed graph are taken
    both ways, as channels are.

    >>> square = Graph((0, 1, 2, 3), {(0, 1), (1, 2), (2, 3), (3, 0)})
    >>> sorted(spanning_tree(square, 1).edges)
    [(0, 1), (0, 3), (1, 2)]
    """
    parent = {root: root}
    waiting = deque([root])
    while waiting:
        rank = waiting.popleft()
        for other in graph.neighbour_lists[rank]:
            if other not in parent:
                parent[other] = rank
                waiting.append(other)
    if len(parent) < len(graph.members):
        check_connected(graph)
    return Graph(graph.members, frozenset((child, up) for child, up in parent.items() if child != up))

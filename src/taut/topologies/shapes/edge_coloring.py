"""Edges in as few matchings as can be found quickly: at most one more than the highest degree."""

from __future__ import annotations

from itertools import count, pairwise

from taut.topologies.graph import Edge, Graph

# at[rank][colour]: the neighbour at the other end of rank's edge of that colour
Colours = dict[int, dict[int, int]]


def matchings(graph: Graph) -> tuple[frozenset[Edge], ...]:
    """The colours of Misra and Gries' edge colouring ("A constructive proof of Vizing's theorem", 1992).

    Edges are coloured one by one; where two ends have no free colour in common, a fan of edges around one end hands its
    colours on, after a path of two alternating colours was swapped. Sorted throughout, so it is the same everywhere.

    >>> [sorted(each) for each in matchings(Graph((0, 1, 2, 3), {(0, 1), (1, 2), (2, 3), (3, 0)}))]
    [[(0, 1), (2, 3)], [(0, 3), (1, 2)]]
    """
    at: Colours = {rank: {} for rank in graph.members}
    enough = 1 + max(map(graph.degree, graph.members), default=0)
    for u, v in sorted(graph.edges):
        common = next((colour for colour in range(enough) if colour not in at[u] and colour not in at[v]), None)
        if common is None:
            _make_room(at, u, v)
        else:
            at[u][common], at[v][common] = v, u
    found: dict[int, set[Edge]] = {}
    for rank, ends in at.items():
        for colour, other in ends.items():
            found.setdefault(colour, set()).add((min(rank, other), max(rank, other)))
    return tuple(frozenset(found[colour]) for colour in sorted(found))


def _free(at: Colours, rank: int) -> int:
    return next(colour for colour in count() if colour not in at[rank])


def _make_room(at: Colours, u: int, v: int) -> None:
    """Colour the edge u - v where no colour is free at both ends, by changing those of others."""
    fan = _fan(at, u, v)
    c, d = _free(at, u), _free(at, fan[-1])
    if c != d:
        _swap(at, u, c, d)
    colour_of = {other: colour for colour, other in at[u].items()}
    for end, w in enumerate(fan):  # the first at which d is free; up to it the fan is still one after the swap
        if d not in at[w]:
            break
        follows = end + 1 < len(fan) and colour_of[fan[end + 1]] not in at[w]
        assert follows, "Misra and Gries: a prefix of the fan ends where d is free"
    for before, after in pairwise(fan[: end + 1]):
        colour = colour_of[after]
        del at[after][colour]
        at[u][colour], at[before][colour] = before, u
    at[u][d], at[fan[end]][d] = fan[end], u


def _fan(at: Colours, u: int, v: int) -> list[int]:
    """Neighbours of u, beginning with v: the colour of u's edge to each is free at the one before. As long as can be."""
    fan, left = [v], dict(sorted(at[u].items()))
    while True:
        following = next((colour for colour in left if colour not in at[fan[-1]]), None)
        if following is None:
            return fan
        fan.append(left.pop(following))


def _swap(at: Colours, u: int, c: int, d: int) -> None:
    """The path from u whose edges are d, c, d, c ... becomes c, d, c, d ..."""
    path, colour, rank = [u], d, u
    while colour in at[rank]:
        rank = at[rank][colour]
        path.append(rank)
        colour = c if colour == d else d
    edges = [(a, b, d if place % 2 == 0 else c) for place, (a, b) in enumerate(pairwise(path))]
    for a, b, old in edges:
        del at[a][old], at[b][old]
    for a, b, old in edges:
        new = c if old == d else d
        at[a][new], at[b][new] = b, a
